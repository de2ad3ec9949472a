#include "registry.h"

#include <map>
#include <memory>
#include <stdexcept>

#include "call_context.h"
#include "export.h"

namespace warpalign::binding {
namespace {

using Operators = std::map<std::string, RegisteredOperator, std::less<>>;

// Made when it is first named, because registrations run in an order that the linker chooses.
Operators& operators() {
  static Operators all;
  return all;
}

thread_local CallContext* current_context = nullptr;

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

// "float max_slope=2.0": type and name.
Parameter parameter_of(std::string_view text) {
  const std::string declared = trimmed(text.substr(0, text.find('=')));
  const auto space = declared.rfind(' ');
  if (space == std::string::npos) throw std::logic_error("warpalign: no parameter: " + declared);
  return {declared.substr(0, space), declared.substr(space + 1)};
}

// Those of "name(...) -> ...". No type or default contains a comma.
std::vector<Parameter> parameters_of(std::string_view schema) {
  const auto begin = schema.find('(') + 1;
  std::string_view rest = schema.substr(begin, schema.find(") ->") - begin);
  std::vector<Parameter> parameters;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view one = rest.substr(0, comma);
    if (trimmed(one) != "*") parameters.push_back(parameter_of(one));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return parameters;
}

}  // namespace

CallContext& CallContext::current() {
  if (current_context == nullptr)
    throw std::logic_error("warpalign: an operator is called outside of a call");
  return *current_context;
}

CurrentCall::CurrentCall(CallContext& context) : previous_(current_context) { current_context = &context; }
CurrentCall::~CurrentCall() { current_context = previous_; }

const RegisteredOperator* find_operator(std::string_view name) {
  const auto found = operators().find(name);
  return found == operators().end() || found->second.invoke == nullptr ? nullptr : &found->second;
}

const RegisteredOperator& operator_of(Invoke invoke) {
  for (const auto& [name, of] : operators()) {
    if (of.invoke == invoke) return of;
  }
  throw std::logic_error("warpalign: a function of no operator");
}

void Library::def(const char* schema) {
  const std::string_view text = schema;
  RegisteredOperator& of = operators()[std::string(text.substr(0, text.find('(')))];
  of.schema = schema;
  of.parameters = parameters_of(text);
}

void Library::add(const char* name, Invoke invoke, Handler handler) {
  RegisteredOperator& of = operators()[name];
  of.invoke = invoke;
  of.handler = handler;
}

}  // namespace warpalign::binding

// The functions below are called by python/warpalign/jax/_library.py, through ctypes.

struct WarpalignArray {
  std::int32_t dtype;  // a ScalarType's number; below 0: no array is given
  std::int32_t axes;
  std::int64_t sizes[8];
};
struct WarpalignSetting {
  double number;
  std::int64_t integer;
  const std::int64_t* integers;
  std::int64_t count;
};

// The schema of operator number `index`; null: there are no more. Numbers begin with 0.
WARPALIGN_EXPORT const char* warpalign_jax_schema(int index) {
  for (const auto& [name, of] : warpalign::binding::operators()) {
    if (of.invoke != nullptr && index-- == 0) return of.schema.c_str();
  }
  return nullptr;
}

// The function that XLA calls for an operator, an XLA_FFI_Handler.
WARPALIGN_EXPORT void* warpalign_jax_handler(const char* name) {
  const auto* of = warpalign::binding::find_operator(name);
  return of == nullptr ? nullptr : reinterpret_cast<void*>(of->handler);
}

// Which results an operator has for arrays of these shapes. Returns their number, or -1, with an error's
// text. Arrays and settings are in the order of the schema's parameters.
WARPALIGN_EXPORT int warpalign_jax_describe(const char* name, const WarpalignArray* arrays, int array_count,
                                            const WarpalignSetting* settings, int setting_count,
                                            WarpalignArray* results, int most, char* error,
                                            std::size_t error_bytes) {
  using namespace warpalign::binding;  // NOLINT: one function
  try {
    alignas(64) static char no_memory[64];
    Arguments arguments;
    for (int i = 0; i < array_count; ++i) {
      const WarpalignArray& a = arrays[i];
      if (a.dtype < 0) {
        arguments.tensors.emplace_back();
      } else {
        arguments.tensors.emplace_back(
            Tensor(static_cast<ScalarType>(a.dtype), {a.sizes, a.sizes + a.axes}, no_memory));
      }
    }
    for (int i = 0; i < setting_count; ++i) {
      const WarpalignSetting& s = settings[i];
      arguments.settings.push_back({s.number, s.integer, {s.integers, s.integers + s.count}});
    }
    CallContext context;
    context.describes = true;
    const CurrentCall current(context);
    const RegisteredOperator* of = find_operator(name);
    if (of == nullptr) throw std::logic_error(std::string("warpalign: no operator ") + name);
    const Results described = of->invoke(arguments);
    if (static_cast<int>(described.size()) > most) throw std::logic_error("warpalign: too many results");
    for (std::size_t i = 0; i < described.size(); ++i) {
      const Tensor& one = described[i];
      results[i].dtype = static_cast<std::int32_t>(one.scalar_type());
      results[i].axes = static_cast<std::int32_t>(one.dim());
      for (std::int64_t axis = 0; axis < one.dim(); ++axis) results[i].sizes[axis] = one.size(axis);
    }
    return static_cast<int>(described.size());
  } catch (const std::exception& raised) {
    const std::string text = raised.what();
    const std::size_t length = text.copy(error, error_bytes - 1);
    error[length] = '\0';
    return -1;
  }
}
