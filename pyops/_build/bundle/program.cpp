// Runs the model on ones and prints the sum of each output of float32, with the C API and smart pointers; ONNX Runtime's
// own C++ API (onnxruntime_cxx_api.h) is a header over the same functions.
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "onnxruntime_c_api.h"
#include "model.h"

namespace {

const OrtApi &ort = *OrtGetApiBase()->GetApi(ORT_API_VERSION);

void check(OrtStatus *status) {
  if (!status) return;
  std::string text = ort.GetErrorMessage(status);
  ort.ReleaseStatus(status);
  throw std::runtime_error(text);
}

template <typename T>
using Owned = std::unique_ptr<T, void (*)(T *)>;

template <typename T, typename Make>
Owned<T> made(void (*release)(T *), Make make) {
  T *pointer = nullptr;
  check(make(&pointer));
  return {pointer, release};
}

std::vector<char> ones(const Input &input) {
  std::vector<char> data(static_cast<std::size_t>(input.count) * input.item);
  const float real = 1;
  const double wide = 1;
  const std::int64_t whole = 1;
  for (std::int64_t i = 0; i < input.count; i++) {
    const void *one = &whole;
    if (input.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) one = &real;
    if (input.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE) one = &wide;
    std::memcpy(data.data() + static_cast<std::size_t>(i) * input.item, one, input.item);
  }
  return data;
}

void run() {
  auto environment = made<OrtEnv>(ort.ReleaseEnv, [](auto out) { return ort.CreateEnv(ORT_LOGGING_LEVEL_WARNING, "program", out); });
  auto options = made<OrtSessionOptions>(ort.ReleaseSessionOptions, [](auto out) { return ort.CreateSessionOptions(out); });
  void *library = nullptr;
  check(ort.RegisterCustomOpsLibrary(options.get(), LIBRARY, &library));
  auto session = made<OrtSession>(ort.ReleaseSession, [&](auto out) { return ort.CreateSession(environment.get(), MODEL, options.get(), out); });
  auto memory = made<OrtMemoryInfo>(ort.ReleaseMemoryInfo, [](auto out) { return ort.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, out); });

  std::vector<std::vector<char>> data;
  std::vector<Owned<OrtValue>> values;
  std::vector<const char *> names;
  std::vector<const OrtValue *> given;
  for (int i = 0; i < INPUTS; i++) {
    const Input &input = inputs[i];
    data.push_back(ones(input));
    values.push_back(made<OrtValue>(ort.ReleaseValue, [&](auto out) {
      return ort.CreateTensorWithDataAsOrtValue(memory.get(), data.back().data(), data.back().size(), input.shape, input.rank, input.type, out);
    }));
    names.push_back(input.name);
    given.push_back(values.back().get());
  }
  std::vector<OrtValue *> results(OUTPUTS, nullptr);
  check(ort.Run(session.get(), nullptr, names.data(), given.data(), given.size(), outputs, OUTPUTS, results.data()));
  for (int i = 0; i < OUTPUTS; i++) {
    Owned<OrtValue> result(results[static_cast<std::size_t>(i)], ort.ReleaseValue);
    auto info = made<OrtTensorTypeAndShapeInfo>(ort.ReleaseTensorTypeAndShapeInfo, [&](auto out) { return ort.GetTensorTypeAndShape(result.get(), out); });
    ONNXTensorElementDataType type;
    std::size_t count = 0;
    void *elements = nullptr;
    check(ort.GetTensorElementType(info.get(), &type));
    check(ort.GetTensorShapeElementCount(info.get(), &count));
    check(ort.GetTensorMutableData(result.get(), &elements));
    std::cout << outputs[i] << ": " << count << " elements";
    const float *first = static_cast<const float *>(elements);
    if (type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) std::cout << ", sum " << std::accumulate(first, first + count, 0.0);
    std::cout << "\n";
  }
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
