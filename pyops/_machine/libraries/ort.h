/* SPDX-License-Identifier: MIT. The names and the layout are those of ONNX Runtime (MIT); the text is not. */
/* The part of ONNX Runtime's C ABI that a built library uses. ONNX Runtime only ever appends: functions keep their
   slots in OrtApi, and OrtCustomOp its fields. */
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef struct Status Status; /* NULL is success */
typedef void *const *Api;     /* OrtApi is a table of functions */
typedef struct {
  Api (*get_api)(uint32_t version);
  const char *(*get_version)(void);
} ApiBase;

/* name, slot, parameters */
#define STATUS_FUNCTIONS(F)                                                                        \
  F(create_domain, 26, (const char *name, void **domain))                                          \
  F(domain_add, 27, (void *domain, const void *op))                                                \
  F(add_domain, 28, (void *options, void *domain))                                                 \
  F(get_data, 51, (void *value, void **data))                                                      \
  F(get_element_type, 60, (const void *info, int *type))                                           \
  F(get_rank, 61, (const void *info, size_t *rank))                                                \
  F(get_dims, 62, (const void *info, int64_t *dims, size_t rank))                                  \
  F(get_type_and_shape, 65, (const void *value, void **info))                                      \
  F(make_type_and_shape, 57, (void **info))                                                        \
  F(set_element_type, 58, (void *info, int type))                                                  \
  F(set_dims, 59, (void *info, const int64_t *dims, size_t rank))                                  \
  F(get_names, 63, (const void *info, const char **names, size_t rank))                            \
  F(get_allocator, 78, (void **allocator))                                                         \
  F(attribute_float, 85, (const void *info, const char *name, float *value))                       \
  F(attribute_int, 86, (const void *info, const char *name, int64_t *value))                       \
  F(attribute_string, 87, (const void *info, const char *name, char *text, size_t *size))          \
  F(get_input, 90, (void *context, size_t index, void **value))                                    \
  F(get_output, 91, (void *context, size_t index, const int64_t *dims, size_t rank, void **value)) \
  F(attribute_floats, 162, (const void *info, const char *name, float *values, size_t *size))      \
  F(attribute_ints, 163, (const void *info, const char *name, int64_t *values, size_t *size))      \
  F(input_count, 230, (const void *info, size_t *count))                                           \
  F(output_count, 231, (const void *info, size_t *count))                                          \
  F(attribute_tensor, 236, (const void *info, const char *name, void *allocator, void **value))    \
  F(add_config_entry, 130, (void *options, const char *key, const char *value))                     \
  F(inferred_count, 267, (const void *context, size_t *count))                                     \
  F(inferred_input, 268, (const void *context, size_t index, void **info))                         \
  F(inferred_attribute, 269, (const void *context, const char *name, const void **attribute))      \
  F(infer_output, 270, (const void *context, size_t index, const void *info))                      \
  F(set_names, 271, (void *info, const char **names, size_t rank))                                 \
  F(read_attribute, 272, (const void *attribute, int type, void *data, size_t bytes, size_t *size)) \
  F(parallel_for, 274, (void *context, void (*part)(void *, size_t), size_t parts, size_t batches, void *job)) \
  F(type_and_shape, 414, (const void *value, int *type, const int64_t **dims, size_t *rank))       \
  F(attribute_strings, 417, (const void *info, const char *name, void *allocator, char ***texts, size_t *size))

/* The first version of ONNX Runtime (1.x) that has each, where it is later than OLDEST. Before INFERS_ABSENT, it ends
   the process if shape inference reads an input, or sets an output, that a node leaves out. */
enum { OLDEST = 16, HAS_PARALLEL_FOR = 17, HAS_VERSIONS = 17, HAS_TYPE_AND_SHAPE = 25, HAS_STRINGS = 25, NEWEST = 25, INFERS_ABSENT = 28 };

#define DECLARE(name, slot, parameters) \
  typedef Status *ort_##name parameters; \
  enum { SLOT_##name = slot };
STATUS_FUNCTIONS(DECLARE)
#define ORT(api, name) ((ort_##name *)(api)[SLOT_##name])

static inline Status *create_status(Api api, const char *text) {
  return ((Status * (*)(int, const char *)) api[0])(1, text); /* ORT_FAIL */
}
static inline const char *status_text(Api api, Status *status) { return ((const char *(*)(Status *))api[2])(status); }
static inline void release_status(Api api, Status *status) { ((void (*)(Status *))api[93])(status); }
static inline void release_value(Api api, void *value) { ((void (*)(void *))api[96])(value); }
static inline void release_type_and_shape(Api api, void *info) { ((void (*)(void *))api[99])(info); }
static inline Status *free_memory(Api api, void *allocator, void *memory) {
  return ((Status * (*)(void *, void *)) api[76])(allocator, memory);
}

enum { REQUIRED, OPTIONAL, VARIADIC }; /* OrtCustomOpInputOutputCharacteristic */

typedef struct CustomOp CustomOp;
struct CustomOp {
  uint32_t version;
  void *create_kernel;
  const char *(*get_name)(const CustomOp *);
  const char *(*get_provider)(const CustomOp *);
  int (*get_input_type)(const CustomOp *, size_t);
  size_t (*get_input_count)(const CustomOp *);
  int (*get_output_type)(const CustomOp *, size_t);
  size_t (*get_output_count)(const CustomOp *);
  void *compute;
  void (*destroy)(void *);
  int (*input_characteristic)(const CustomOp *, size_t);
  int (*output_characteristic)(const CustomOp *, size_t);
  int (*input_memory)(const CustomOp *, size_t);
  int (*input_min_arity)(const CustomOp *);
  int (*input_homogeneity)(const CustomOp *);
  int (*output_min_arity)(const CustomOp *);
  int (*output_homogeneity)(const CustomOp *);
  Status *(*create_kernel_v2)(const CustomOp *, Api, const void *, void **);
  Status *(*compute_v2)(void *, void *);
  Status *(*infer_shapes)(const CustomOp *, void *); /* these three since 1.17 */
  int (*start_version)(const CustomOp *);
  int (*end_version)(const CustomOp *);
  size_t (*in_place)(int **inputs, int **outputs); /* these two since 1.18 */
  void (*release_in_place)(int *inputs, int *outputs);
  void *alias[2];
};
