/* Runs the model and prints its outputs; with an argument (program RUNS), runs it RUNS times more and prints the
   milliseconds of the fastest run. Inputs are read from NAME.bin, the plain bytes of their elements, and are ones where
   there is no such file. */
#define _POSIX_C_SOURCE 199309L
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "onnxruntime_c_api.h"
#include "model.h"

static const OrtApi *ort;

static void check(OrtStatus *status) {
  if (!status) return;
  fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
  exit(1);
}

static void read_input(const Input *input, void *data) {
  char name[256];
  snprintf(name, sizeof name, "%s.bin", input->name);
  FILE *file = fopen(name, "rb");
  if (file) {
    if (fread(data, input->item, (size_t)input->count, file) != (size_t)input->count || fgetc(file) != EOF) {
      fprintf(stderr, "%s does not have %lld elements\n", name, (long long)input->count);
      exit(1);
    }
    fclose(file);
    return;
  }
  float real = 1;
  double wide = 1;
  int64_t whole = 1; /* little-endian, as all CPUs that libraries are built for */
  const void *one = input->type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT    ? (const void *)&real
                    : input->type == ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE ? (const void *)&wide
                                                                          : (const void *)&whole;
  for (int64_t i = 0; i < input->count; i++)
    for (size_t byte = 0; byte < input->item; byte++) ((char *)data)[i * (int64_t)input->item + (int64_t)byte] = ((const char *)one)[byte];
}

static double element(const void *data, ONNXTensorElementDataType type, size_t i) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return ((const float *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE: return ((const double *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return (double)((const int64_t *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64: return (double)((const uint64_t *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return ((const int32_t *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32: return ((const uint32_t *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16: return ((const int16_t *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16: return ((const uint16_t *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8: return ((const int8_t *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: return ((const uint8_t *)data)[i];
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL: return ((const bool *)data)[i];
    default: fprintf(stderr, "an output has an element type that this program does not print\n"); exit(1);
  }
}

static void print_output(const char *name, OrtValue *value) {
  OrtTensorTypeAndShapeInfo *info;
  ONNXTensorElementDataType type;
  size_t rank, count;
  int64_t dims[32];
  void *data;
  check(ort->GetTensorTypeAndShape(value, &info));
  check(ort->GetTensorElementType(info, &type));
  check(ort->GetDimensionsCount(info, &rank));
  check(ort->GetDimensions(info, dims, rank));
  check(ort->GetTensorShapeElementCount(info, &count));
  check(ort->GetTensorMutableData(value, &data));
  printf("%s [", name);
  for (size_t i = 0; i < rank; i++) printf(i ? ", %lld" : "%lld", (long long)dims[i]);
  printf("]:");
  for (size_t i = 0; i < count && i < 10; i++) printf(" %.9g", element(data, type, i));
  printf(count > 10 ? " ...\n" : "\n");
  ort->ReleaseTensorTypeAndShapeInfo(info);
}

int main(int argc, char **argv) {
  OrtEnv *environment;
  OrtSessionOptions *options;
  OrtSession *session;
  OrtMemoryInfo *memory;
  OrtValue *values[INPUTS + 1], *results[OUTPUTS] = {NULL};
  const char *names[INPUTS + 1];
  void *library, *data[INPUTS + 1];
  int runs = argc > 1 ? atoi(argv[1]) : 0;

  ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "program", &environment));
  check(ort->CreateSessionOptions(&options));
  check(ort->RegisterCustomOpsLibrary(options, LIBRARY, &library));
  check(ort->CreateSession(environment, MODEL, options, &session));
  check(ort->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory));
  for (int i = 0; i < INPUTS; i++) {
    size_t bytes = (size_t)inputs[i].count * inputs[i].item;
    names[i] = inputs[i].name, data[i] = malloc(bytes + 1);
    read_input(inputs + i, data[i]);
    check(ort->CreateTensorWithDataAsOrtValue(memory, data[i], bytes, inputs[i].shape, inputs[i].rank, inputs[i].type, values + i));
  }
  check(ort->Run(session, NULL, names, (const OrtValue *const *)values, INPUTS, outputs, OUTPUTS, results));
  for (int i = 0; i < OUTPUTS; i++) print_output(outputs[i], results[i]);

  double fastest = 0;
  for (int run = 0; run < runs; run++) {
    struct timespec begin, end;
    for (int i = 0; i < OUTPUTS; i++) ort->ReleaseValue(results[i]), results[i] = NULL;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    check(ort->Run(session, NULL, names, (const OrtValue *const *)values, INPUTS, outputs, OUTPUTS, results));
    clock_gettime(CLOCK_MONOTONIC, &end);
    double taken = (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
    if (!run || taken < fastest) fastest = taken;
  }
  if (runs > 0) printf("%.4f ms\n", fastest);

  for (int i = 0; i < OUTPUTS; i++) ort->ReleaseValue(results[i]);
  for (int i = 0; i < INPUTS; i++) ort->ReleaseValue(values[i]), free(data[i]);
  ort->ReleaseMemoryInfo(memory);
  ort->ReleaseSession(session);
  ort->ReleaseSessionOptions(options);
  ort->ReleaseEnv(environment);
  return 0;
}
