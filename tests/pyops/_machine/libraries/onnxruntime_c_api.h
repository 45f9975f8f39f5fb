/* The part of ONNX Runtime's C API that the programs beside it use. With ONNX Runtime's own header of this name in its
   place they compile too. */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ORT_API_VERSION 16

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtValue OrtValue;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;

typedef enum { ORT_LOGGING_LEVEL_WARNING = 2 } OrtLoggingLevel;
typedef enum { OrtDeviceAllocator = 0 } OrtAllocatorType;
typedef enum { OrtMemTypeDefault = 0 } OrtMemType;
typedef enum {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = 9, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = 11,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64
} ONNXTensorElementDataType;

/* The other functions are counted only: each has its place. */
typedef struct OrtApi {
  void *others_0[2];
  const char *(*GetErrorMessage)(const OrtStatus *);
  OrtStatus *(*CreateEnv)(OrtLoggingLevel, const char *, OrtEnv **);
  void *others_4[3];
  OrtStatus *(*CreateSession)(const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **);
  void *others_8[1];
  OrtStatus *(*Run)(OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t,
                    const char *const *, size_t, OrtValue **);
  OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **);
  void *others_11[18];
  OrtStatus *(*RegisterCustomOpsLibrary)(OrtSessionOptions *, const char *, void **);
  void *others_30[19];
  OrtStatus *(*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t,
                                               ONNXTensorElementDataType, OrtValue **);
  void *others_50[1];
  OrtStatus *(*GetTensorMutableData)(OrtValue *, void **);
  void *others_52[8];
  OrtStatus *(*GetTensorElementType)(const OrtTensorTypeAndShapeInfo *, ONNXTensorElementDataType *);
  OrtStatus *(*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *, size_t *);
  OrtStatus *(*GetDimensions)(const OrtTensorTypeAndShapeInfo *, int64_t *, size_t);
  void *others_63[1];
  OrtStatus *(*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo *, size_t *);
  OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *, OrtTensorTypeAndShapeInfo **);
  void *others_66[3];
  OrtStatus *(*CreateCpuMemoryInfo)(OrtAllocatorType, OrtMemType, OrtMemoryInfo **);
  void *others_70[22];
  void (*ReleaseEnv)(OrtEnv *);
  void (*ReleaseStatus)(OrtStatus *);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo *);
  void (*ReleaseSession)(OrtSession *);
  void (*ReleaseValue)(OrtValue *);
  void *others_97[2];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *);
  void (*ReleaseSessionOptions)(OrtSessionOptions *);
} OrtApi;

typedef struct OrtApiBase {
  const OrtApi *(*GetApi)(uint32_t);
  const char *(*GetVersionString)(void);
} OrtApiBase;

const OrtApiBase *OrtGetApiBase(void);

#ifdef __cplusplus
}
#endif
