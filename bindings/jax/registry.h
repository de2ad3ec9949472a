// The operators' functions and schemas by name, and one call of a function with arguments that are read in
// the order of its parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "front_end.h"

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

namespace warpalign::binding {

// A parameter of a schema, such as "Tensor? x_mask" or "int[] durations".
struct Parameter {
  std::string type, name;
};

// The arguments of a call, in the order of the parameters: tensors apart from all others, which are settings.
struct Setting {
  double number = 0.0;
  int64_t integer = 0;
  std::vector<int64_t> integers;
};
struct Arguments {
  std::vector<std::optional<Tensor>> tensors;
  std::vector<Setting> settings;
};

// Reads the argument of a parameter's C++ type. Tensors and settings are counted apart.
class Reader {
 public:
  explicit Reader(const Arguments& arguments) : arguments_(arguments) {}

  template <class T>
  T next() {
    if constexpr (std::is_same_v<T, std::optional<Tensor>>) {
      return arguments_.tensors.at(tensor_++);
    } else if constexpr (std::is_same_v<T, Tensor>) {
      const std::optional<Tensor>& tensor = arguments_.tensors.at(tensor_++);
      if (!tensor) throw std::invalid_argument("expected a tensor, got none");
      return *tensor;
    } else if constexpr (std::is_same_v<T, double>) {
      return arguments_.settings.at(setting_++).number;
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      return arguments_.settings.at(setting_++).integers;
    } else {
      static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, bool>);
      return static_cast<T>(arguments_.settings.at(setting_++).integer);
    }
  }

 private:
  const Arguments& arguments_;
  std::size_t tensor_ = 0, setting_ = 0;
};

using Results = std::vector<Tensor>;
using Invoke = Results (*)(const Arguments& arguments);
using Handler = XLA_FFI_Error* (*)(XLA_FFI_CallFrame* frame);

inline Results listed(Tensor result) { return {std::move(result)}; }
template <class... T>
Results listed(std::tuple<T...> results) {
  return std::apply([](auto&... each) { return Results{std::move(each)...}; }, results);
}

template <class Result, class... P>
Results invoke(Result (*function)(P...), const Arguments& arguments) {
  Reader reader(arguments);
  // A list in braces is evaluated from left to right.
  std::tuple<std::remove_cvref_t<P>...> values{reader.next<std::remove_cvref_t<P>>()...};
  if constexpr (std::is_void_v<Result>) {
    std::apply(function, values);
    return {};
  } else {
    return listed(std::apply(function, values));
  }
}

// What is known of an operator. Both parts are there as soon as the library is loaded.
struct RegisteredOperator {
  std::string schema;
  std::vector<Parameter> parameters;
  Invoke invoke = nullptr;
  Handler handler = nullptr;
};

// Null: there is no such operator.
const RegisteredOperator* find_operator(std::string_view name);

// The operator that a function implements.
const RegisteredOperator& operator_of(Invoke invoke);

// Runs the operator in a call of XLA.
XLA_FFI_Error* run_call(const RegisteredOperator& of, XLA_FFI_CallFrame* frame);

template <auto kFunction>
struct Implementation {
  static Results invoke(const Arguments& arguments) { return binding::invoke(kFunction, arguments); }
  static XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame) {
    static const RegisteredOperator& of = operator_of(&invoke);
    return run_call(of, frame);
  }
};

// What the registration blocks of bindings/operators speak to.
class Library {
 public:
  void def(const char* schema);
  template <class T>
  void impl(const char* name, T /*implementation*/) {
    add(name, &T::invoke, &T::handle);
  }

 private:
  static void add(const char* name, Invoke invoke, Handler handler);
};

struct Registration {
  explicit Registration(void (*block)(Library&)) {
    Library library;
    block(library);
  }
};

}  // namespace warpalign::binding

// NOLINTBEGIN(bugprone-macro-parentheses): a parameter's name
#define WARPALIGN_REGISTRATION(library)                                            \
  static void warpalign_register(warpalign::binding::Library& library);            \
  static const warpalign::binding::Registration registration(&warpalign_register); \
  static void warpalign_register(warpalign::binding::Library& library)
// NOLINTEND(bugprone-macro-parentheses)
#define WARPALIGN_SCHEMAS(library) WARPALIGN_REGISTRATION(library)
#define WARPALIGN_OPERATORS(library) WARPALIGN_REGISTRATION(library)
#define WARPALIGN_OPERATOR(function) \
  warpalign::binding::Implementation<function> {}
