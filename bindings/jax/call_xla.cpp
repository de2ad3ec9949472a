// From a call of XLA's foreign function interface to an operator's function, and its errors back.
#include "call_xla.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "call_context.h"
#include "registry.h"

namespace warpalign::binding {
namespace {

ScalarType scalar_type_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F64:
      return ScalarType::Double;
    case ffi::DataType::F32:
      return ScalarType::Float;
    case ffi::DataType::F16:
      return ScalarType::Half;
    case ffi::DataType::BF16:
      return ScalarType::BFloat16;
    case ffi::DataType::S32:
      return ScalarType::Int;
    case ffi::DataType::S64:
      return ScalarType::Long;
    case ffi::DataType::U8:
      return ScalarType::Byte;
    case ffi::DataType::PRED:
      return ScalarType::Bool;
    default:
      throw std::runtime_error("warpalign: an array's dtype is none that an operator takes");
  }
}

Tensor tensor_of(const ffi::AnyBuffer& buffer) {
  const auto sizes = buffer.dimensions();
  return {scalar_type_of(buffer.element_type()), {sizes.begin(), sizes.end()}, buffer.untyped_data()};
}

// The value, or an exception that names the attribute.
template <class T>
T attribute(const ffi::Dictionary& attributes, const std::string& name) {
  const ffi::ErrorOr<T> value = attributes.get<T>(name);
  if (!value.has_value()) throw std::logic_error("warpalign: " + name + ": " + value.error().message());
  return *value;
}

// Attribute `given` has a bit for each tensor of the schema, in its order: whether there is a buffer for it.
Arguments arguments_of(const RegisteredOperator& of, const ffi::RemainingArgs& buffers,
                       const ffi::Dictionary& attributes) {
  Arguments arguments;
  const auto given = static_cast<std::uint64_t>(attribute<int64_t>(attributes, "given"));
  std::size_t buffer = 0;
  for (const Parameter& one : of.parameters) {
    if (one.type.starts_with("Tensor")) {
      const bool is_given = given >> arguments.tensors.size() & 1U;
      if (is_given) {
        const auto next = buffers.get<ffi::AnyBuffer>(buffer++);
        if (!next.has_value()) throw std::logic_error("warpalign: " + one.name + ": no buffer");
        arguments.tensors.emplace_back(tensor_of(*next));
      } else {
        arguments.tensors.emplace_back();
      }
      continue;
    }
    Setting setting;
    if (one.type == "float") {
      setting.number = attribute<double>(attributes, one.name);
    } else if (one.type == "bool") {
      setting.integer = attribute<bool>(attributes, one.name) ? 1 : 0;
    } else if (one.type == "int[]") {
      const auto all = attribute<ffi::Span<const int64_t>>(attributes, one.name);
      setting.integers.assign(all.begin(), all.end());
    } else {
      setting.integer = attribute<int64_t>(attributes, one.name);
    }
    arguments.settings.push_back(std::move(setting));
  }
  return arguments;
}

// Results are returned where XLA wants them: an operator that allocates in another order than it returns is
// wrong.
void check_places(const Results& returned, const std::vector<Tensor>& wanted) {
  bool same = returned.size() == wanted.size();
  for (std::size_t i = 0; same && i < wanted.size(); ++i)
    same = returned[i].const_data_ptr() == wanted[i].const_data_ptr();
  if (!same) throw std::logic_error("warpalign: the operator's results are in another order than XLA's");
}

}  // namespace

ffi::Error run(const RegisteredOperator& of, CallContext& context, const ffi::RemainingArgs& buffers,
               const ffi::RemainingRets& results, const ffi::Dictionary& attributes) try {
  for (std::size_t i = 0; i < results.size(); ++i) {
    auto result = results.get<ffi::AnyBuffer>(i);
    if (!result.has_value()) return result.error();
    context.results.push_back(tensor_of(**result));
  }
  const CurrentCall current(context);
  check_places(of.invoke(arguments_of(of, buffers, attributes)), context.results);
  return ffi::Error::Success();
} catch (const std::bad_alloc&) {
  return {ffi::ErrorCode::kResourceExhausted, "warpalign: no memory is left for the call's workspace"};
} catch (const std::logic_error& error) {
  return ffi::Error::Internal(error.what());
} catch (const std::exception& error) {
  return ffi::Error::InvalidArgument(error.what());
}

}  // namespace warpalign::binding
