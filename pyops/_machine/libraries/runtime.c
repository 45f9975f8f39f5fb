/* What is the same in every built library: it answers ONNX Runtime's questions from tables, hands its tensors to
   numba's machine code, and turns what that raises into statuses. TABLES is the file that was generated for the ops. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "ort.h"
#include "layout.h" /* where machine code finds words, as pyops._machine.memory_layout says */

#define MOST_DIMS 32
#include "memory.h"

/* numba's calling convention: 0 is success, and what was raised comes second. */
typedef struct Object Object;
typedef struct {
  const char *text; /* where a byte \xFE and a number stand for the str of a value, \xFF and a number for its repr */
  int32_t length;
  void *values;
  Object *(*box)(void *values); /* which frees them, and returns a tuple */
  int32_t count;
} Raised;
typedef int32_t Body(int64_t *answer, Raised **raised, int64_t state, int64_t record, int64_t context, int64_t tensors,
                     int64_t shapes, int64_t failures);
typedef int32_t Part(int64_t *answer, Raised **raised, int64_t job, int64_t index);
typedef int32_t Shapes(int64_t *answer, Raised **raised, int64_t sizes, int64_t results, int64_t attributes);

typedef struct { int type, rank; } Kind; /* rank -1: an absent input */
typedef struct {
  Body *body;
  Part *part;
  Shapes *shapes;         /* NULL without a shape function */
  const char *attributes; /* as `describe` spells those of a node */
  int inputs, loops;
  const Kind *input;
  const int *rank; /* of the outputs, by the shape function */
  const int *core; /* core dimensions of the inputs; any others may be taken together, to as many as `loops` */
} Record;
typedef struct {
  const char *name;
  char kind; /* i, f, s, t, or I, F, S for lists */
  int required;
  const char *allowed; /* |1|2|, of an int */
  const char *text;    /* the default, as in Record.attributes */
  int count;
  const int64_t *words;
  const void *data;
} Attribute;
typedef struct { int type, characteristic; } Tensors;
typedef struct {
  CustomOp op;
  const char *domain, *name;
  int version, last_version, inputs, outputs, attributes, records;
  int choices; /* of types, each an Op: this one and those that follow it; ONNX Runtime infers shapes by the first */
  const Tensors *input, *output;
  const Attribute *attribute;
  const Record *record;
} Op;
typedef struct { const char *name, *ops; } Domain;
typedef struct { const char *name; unsigned leaf, part; char place; int bit; } Feature; /* of a CPU, as CPUID tells it */

static int ort; /* the version of ONNX Runtime, 1.x, as far as we know any */
static Api shapes_api; /* for shape inference, which gets none */

/* Text that is cut off where it does not fit. */
typedef struct { char text[1024]; size_t length; } Text;

#include <stdarg.h>
static void put(Text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t left = sizeof text->text - text->length;
  int wanted = vsnprintf(text->text + text->length, left, format, arguments);
  va_end(arguments);
  if (wanted > 0) text->length += (size_t)wanted < left ? (size_t)wanted : left - 1;
}
static void put_quoted(Text *text, const char *word) {
  put(text, "'");
  for (; *word; word++) put(text, *word == '\'' || *word == '\\' ? "\\%c" : "%c", *word);
  put(text, "'");
}
static Status *fail(Api api, const Op *op, Text *text) {
  Text whole = {"", 0};
  put(&whole, "%s::%s: %s", op->domain, op->name, text->text);
  return create_status(api, whole.text);
}

/* The values of an exception: what generated code calls in place of the functions of Python's C API with these names. */
struct Object {
  Text text, repr; /* of anything but a tuple or list */
  const char *brackets;
  int64_t count;
  Object **items;
};
Object pyops__Py_NoneStruct = {{"None", 4}, {"None", 4}, NULL, 0, NULL};
static Object *new_object(const char *brackets, int64_t count) {
  Object *made = calloc(1, sizeof *made);
  if (made) made->brackets = brackets, made->items = calloc((size_t)count + 1, sizeof *made->items);
  if (made && made->items) made->count = count;
  return made;
}
static Object *new_number(const char *format, ...) {
  Object *made = new_object(NULL, 0);
  va_list arguments;
  va_start(arguments, format);
  if (made) vsnprintf(made->text.text, sizeof made->text.text, format, arguments), made->repr = made->text;
  va_end(arguments);
  return made;
}
static void free_object(Object *object) {
  for (int64_t i = 0; object && i < object->count; i++) free_object(object->items[i]);
  if (object && object != &pyops__Py_NoneStruct) free(object->items), free(object);
}
static void put_object(Text *text, const Object *object, int repr) {
  if (object && object->brackets) {
    put(text, "%c", object->brackets[0]);
    for (int64_t i = 0; i < object->count; i++) put(text, i ? ", " : ""), put_object(text, object->items[i], 1);
    put(text, "%s", object->brackets + (object->brackets[1] == ',' && object->count != 1 ? 2 : 1));
  } else put(text, "%s", !object ? "..." : repr ? object->repr.text : object->text.text);
}
static void put_repr(Text *text, const char *word) {
  char quote = strchr(word, '\'') && !strchr(word, '"') ? '"' : '\'';
  put(text, "%c", quote);
  for (; *word; word++)
    if (*word == quote || *word == '\\') put(text, "\\%c", *word);
    else if (*word == '\n' || *word == '\r' || *word == '\t') put(text, "\\%c", *word == '\n' ? 'n' : *word == '\r' ? 'r' : 't');
    else if ((unsigned char)*word < 32 || *word == 127) put(text, "\\x%02x", *word);
    else put(text, "%c", *word);
  put(text, "%c", quote);
}
static void put_float(Text *text, double value, int point) { /* the shortest text of the same value, as Python's repr */
  char word[40] = "";
  int digits = 1;
  for (; digits <= 17; digits++) {
    snprintf(word, sizeof word, "%.*e", digits - 1, value);
    if (strtod(word, NULL) == value) break;
  }
  const char *e = strchr(word, 'e');
  int exponent = e ? (int)strtod(e + 1, NULL) : 16, decimals = digits - 1 - exponent;
  if (exponent >= -4 && exponent < 16) snprintf(word, sizeof word, "%.*f", decimals > point ? decimals : point, value);
  put(text, "%s", value == value ? word : "nan");
}
Object *pyops_PyLong_FromLongLong(int64_t value) { return new_number("%lld", (long long)value); }
Object *pyops_PyLong_FromUnsignedLongLong(uint64_t value) { return new_number("%llu", (unsigned long long)value); }
Object *pyops_PyBool_FromLong(int64_t value) { return new_number(value ? "True" : "False"); }
Object *pyops_PyFloat_FromDouble(double value) {
  Text word = {"", 0};
  put_float(&word, value, 1);
  return new_number("%s", word.text);
}
Object *pyops_PyComplex_FromDoubles(double real, double imaginary) {
  Text word = {"", 0};
  int64_t bits, sign;
  memcpy(&bits, &real, sizeof bits), memcpy(&sign, &imaginary, sizeof sign);
  if (bits) put(&word, "("), put_float(&word, real, 0);
  if (bits && (sign >= 0 || imaginary != imaginary)) put(&word, "+");
  put_float(&word, imaginary, 0);
  return new_number(bits ? "%sj)" : "%sj", word.text);
}
Object *pyops_PyUnicode_FromKindAndData(int32_t bytes, const void *data, int64_t length) {
  Object *made = new_object(NULL, 0);
  for (int64_t i = 0; made && i < length; i++) {
    uint32_t c = bytes == 1 ? ((const uint8_t *)data)[i] : bytes == 2 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
    if (!c) put(&made->text, "\\0");
    else if (c < 0x80) put(&made->text, "%c", c);
    else if (c < 0x800) put(&made->text, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 63));
    else if (c < 0x10000) put(&made->text, "%c%c%c", 0xE0 | c >> 12, 0x80 | (c >> 6 & 63), 0x80 | (c & 63));
    else put(&made->text, "%c%c%c%c", 0xF0 | c >> 18, 0x80 | (c >> 12 & 63), 0x80 | (c >> 6 & 63), 0x80 | (c & 63));
  }
  if (made) put_repr(&made->repr, made->text.text);
  return made;
}
Object *pyops_numba_unpickle(const char *text, int32_t length, const void *hash) { /* a text and its repr */
  Object *made = new_object(NULL, 0);
  if (made) put(&made->text, "%s", text), put(&made->repr, "%s", text + strlen(text) + 1);
  return (void)length, (void)hash, made;
}
Object *pyops_PyTuple_New(int64_t count) { return new_object("(,)", count); }
Object *pyops_PyList_New(int64_t count) { return new_object("[]", count); }
int32_t pyops_PyTuple_SetItem(Object *items, int64_t index, Object *item) {
  if (items && index < items->count) items->items[index] = item;
  else free_object(item);
  return 0;
}
int32_t pyops_PyList_SetItem(Object *items, int64_t index, Object *item) { return pyops_PyTuple_SetItem(items, index, item); }
Object *pyops_PyTuple_Pack(int64_t count, ...) {
  Object *made = pyops_PyTuple_New(count);
  va_list items;
  va_start(items, count);
  for (int64_t i = 0; i < count; i++) pyops_PyTuple_SetItem(made, i, va_arg(items, Object *));
  va_end(items);
  return made;
}
void pyops_Py_IncRef(Object *object) { (void)object; }
int64_t pyops_PyObject_Hash(Object *object) { return (void)object, 0; }
static void put_raised(Text *text, Raised *raised) {
  Object *values = raised->count > 0 ? raised->box(raised->values) : NULL;
  for (const unsigned char *c = (const unsigned char *)raised->text; *c; c++)
    if (*c < 0xFE) put(text, "%c", *c);
    else put_object(text, values && c[1] <= values->count ? values->items[c[1] - 1] : NULL, *c == 0xFF), c++;
  free_object(values);
  if (raised->count > 0) free(raised);
}

/* Nodes. */

typedef struct { void **values; int count; } Owned;
typedef struct {
  Api api;
  const Op *op;
  size_t inputs, outputs;
  int64_t *words;
  Text attributes;
  Owned tensors;
} Node;

static const char *const type_names[] = {"?", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "string",
                                         "bool", "float16", "float64", "uint32", "uint64", "complex64", "complex128",
                                         "bfloat16"};
static const int item_sizes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
static const char *type_name(int type) { return type > 0 && type < 17 ? type_names[type] : "another type"; }

typedef struct { int64_t type, rank, dims[MOST_DIMS]; void *data, *value; } Tensor;

static Status *read_tensor(Api api, void *value, Tensor *tensor) {
  size_t rank;
  int type;
  Status *status;
  tensor->value = value;
  if (ort >= HAS_TYPE_AND_SHAPE) {
    const int64_t *dims;
    status = ORT(api, type_and_shape)(value, &type, &dims, &rank);
    if (status) return status;
    if (rank && rank <= MOST_DIMS) memcpy(tensor->dims, dims, rank * sizeof *dims);
  } else {
    void *info;
    status = ORT(api, get_type_and_shape)(value, &info);
    if (status) return status;
    status = ORT(api, get_element_type)(info, &type);
    if (!status) status = ORT(api, get_rank)(info, &rank);
    if (!status && rank <= MOST_DIMS) status = ORT(api, get_dims)(info, tensor->dims, rank);
    release_type_and_shape(api, info);
    if (status) return status;
  }
  if (rank > MOST_DIMS) return create_status(api, "a tensor has more than 32 dimensions");
  tensor->type = type;
  tensor->rank = (int64_t)rank;
  return ORT(api, get_data)(value, &tensor->data);
}

/* Where a node's attributes are: an OrtKernelInfo, or in shape inference an OrtShapeInferContext. */
typedef struct { const void *info, *context; } Source;

/* Reads an attribute of numbers or a text into new memory, which is longer by one item of zeros. */
static Status *fetch(Api api, Source source, const Attribute *a, void **data, size_t *count) {
  size_t item = a->kind == 's' ? 1 : strchr("fF", a->kind) ? sizeof(float) : sizeof(int64_t);
  Status *status;
  *count = 1;
  if (source.context) {
    const void *found;
    status = ORT(api, inferred_attribute)(source.context, a->name, &found);
    if (status) return status;
    int type = 1 + (int)(strchr("iIfFs", a->kind) - "iIfFs"); /* OrtOpAttrType */
    size_t bytes = 0;
    release_status(api, ORT(api, read_attribute)(found, type, NULL, 0, &bytes)); /* it fails, and tells the size */
    *data = calloc(bytes / item + 1, item), *count = bytes / item;
    return bytes ? ORT(api, read_attribute)(found, type, *data, bytes, &bytes) : NULL;
  }
  const void *info = source.info;
  if (a->kind == 'I') status = ORT(api, attribute_ints)(info, a->name, NULL, count);
  else if (a->kind == 'F') status = ORT(api, attribute_floats)(info, a->name, NULL, count);
  else if (a->kind == 's') *count = 0, status = ORT(api, attribute_string)(info, a->name, NULL, count);
  else status = NULL;
  if (status) return status;
  *data = calloc(*count + 1, item);
  if (a->kind == 'i') return ORT(api, attribute_int)(info, a->name, *data);
  if (a->kind == 'f') return ORT(api, attribute_float)(info, a->name, *data);
  if (a->kind == 'I') return ORT(api, attribute_ints)(info, a->name, *data, count);
  if (a->kind == 'F') return ORT(api, attribute_floats)(info, a->name, *data, count);
  return ORT(api, attribute_string)(info, a->name, *data, count);
}

/* Appends the words of an attribute to `words`, and its description, as in records, to the node's. */
static Status *read_attribute(Node *node, const Attribute *a, Source source, int64_t **words, int *count) {
  Api api = node->api;
  Status *status = NULL;
  size_t size = 0;
  Text *text = &node->attributes;
  int64_t *made = NULL;
  if (!strchr("St", a->kind)) {
    void *data = NULL;
    status = fetch(api, source, a, &data, &size);
    if (!status && a->kind == 's' && strlen(data) + 1 < size) {
      Text said = {"", 0};
      put(&said, "attribute '%s' has a NUL, which this library cannot read", a->name);
      free(data);
      return fail(api, node->op, &said);
    }
    if (!status && a->kind == 's') put(text, "%s=", a->name), put_quoted(text, data), size = 0;
    else if (!status && strchr("IF", a->kind)) put(text, "%s[%d]", a->name, (int)size);
    else if (!status) put(text, "%s", a->name);
    made = malloc((size + 1) * sizeof *made);
    for (size_t i = 0; !status && i < size; i++) {
      double wide = strchr("fF", a->kind) ? ((float *)data)[i] : 0;
      if (strchr("fF", a->kind)) memcpy(made + i, &wide, sizeof wide);
      else made[i] = ((int64_t *)data)[i];
    }
    free(data);
  } else if (a->kind == 'S') {
    void *allocator = NULL;
    char **strings = NULL;
    if (ort < HAS_STRINGS) return create_status(api, "an attribute is a list of strings, which needs ONNX Runtime 1.25 or later");
    status = ORT(api, get_allocator)(&allocator);
    if (!status) status = ORT(api, attribute_strings)(source.info, a->name, allocator, &strings, &size);
    if (!status) {
      put(text, "%s=[", a->name);
      for (size_t i = 0; i < size; i++) put(text, i ? ", " : ""), put_quoted(text, strings[i]), free_memory(api, allocator, strings[i]);
      put(text, "]");
      free_memory(api, allocator, strings);
    }
    size = 0;
  } else {
    void *allocator = NULL, *value = NULL;
    Tensor tensor = {0};
    status = ORT(api, get_allocator)(&allocator);
    if (!status) status = ORT(api, attribute_tensor)(source.info, a->name, allocator, &value);
    if (!status) {
      node->tensors.values[node->tensors.count++] = value;
      status = read_tensor(api, value, &tensor);
      if (status) return status;
      size = 1 + (size_t)tensor.rank;
      made = malloc(size * sizeof *made);
      made[0] = (int64_t)(intptr_t)tensor.data;
      memcpy(made + 1, tensor.dims, (size - 1) * sizeof *made);
      put(text, "%s=%s[%d]", a->name, type_name((int)tensor.type), (int)tensor.rank);
    }
  }
  if (status) {
    free(made), made = NULL, size = 0;
    if (a->required || (source.info && !strstr(status_text(api, status), "No attribute with"))) return status;
    release_status(api, status);
    put(text, "%s", a->text);
    size = (size_t)a->count;
    made = malloc((size + 1) * sizeof *made);
    if (size) memcpy(made, a->words, size * sizeof *made);
    if (a->data) made[0] = (int64_t)(intptr_t)a->data;
  }
  put(text, "; ");
  if (a->allowed && size) {
    Text wanted = {"", 0};
    put(&wanted, "|%lld|", (long long)made[0]);
    if (!strstr(a->allowed, wanted.text)) {
      Text said = {"", 0};
      put(&said, "attribute '%s' is %lld; expected one of %s", a->name, (long long)made[0], a->allowed);
      free(made);
      return fail(api, node->op, &said);
    }
  }
  *words = realloc(*words, ((size_t)*count + size + 1) * sizeof **words);
  if (size) memcpy(*words + *count, made, size * sizeof *made);
  *count += (int)size;
  free(made);
  return NULL;
}

static Status *read_attributes(Node *node, Source source) {
  const Op *op = node->op;
  Status *status = NULL;
  int count = 0;
  node->tensors.values = calloc((size_t)op->attributes + 1, sizeof(void *));
  for (int i = 0; i < op->attributes && !status; i++) status = read_attribute(node, op->attribute + i, source, &node->words, &count);
  return status;
}

static void destroy(void *pointer) {
  Node *node = pointer;
  for (int i = 0; i < node->tensors.count; i++) release_value(node->api, node->tensors.values[i]);
  free(node->tensors.values), free(node->words), free(node);
}

static Status *create(const CustomOp *custom, Api api, const void *info, void **made) {
  const Op *op = (const Op *)custom;
  Node *node = calloc(1, sizeof *node);
  if (!node) return create_status(api, "there is no memory for a node");
  node->api = api, node->op = op;
  Status *status = ORT(api, input_count)(info, &node->inputs);
  if (!status) status = ORT(api, output_count)(info, &node->outputs);
  if (!status) status = read_attributes(node, (Source){info, NULL});
  int known = 0;
  for (int r = 0; r < op->records; r++) known |= !strcmp(op->record[r].attributes, node->attributes.text);
  if (!status && !known) {
    Text said = {"", 0};
    put(&said, "this library has no code for the attributes %sbut for ", node->attributes.text);
    for (int r = 0; r < op->records; r++) {
      int told = 0;
      for (int before = 0; before < r; before++) told |= !strcmp(op->record[before].attributes, op->record[r].attributes);
      if (!told) put(&said, "%s%s", r ? "or " : "", op->record[r].attributes);
    }
    put(&said, "build it with --for MODEL");
    status = fail(api, op, &said);
  }
  if (status) return destroy(node), status;
  *made = node;
  return NULL;
}

/* Calls. */

typedef struct {
  const Node *node;
  void *context;
  const Record *record;
  int64_t words[RECORD_ATTRIBUTES + 1]; /* the record, as machine code reads it */
  int looped;       /* whether dimensions were taken together, and: */
  int64_t lead[MOST_DIMS], lead_rank, turn;
  atomic_int failed;
  Text message;
  Tensor inputs[MOST_TENSORS], outputs[MOST_TENSORS];
} Call;

static void note(Call *call, Raised *raised) {
  int none = 0;
  if (!atomic_compare_exchange_strong(&call->failed, &none, 1)) {
    if (raised && raised->count > 0) free(raised->values), free(raised);
  } else if (raised)
    put_raised(&call->message, raised);
  else
    put(&call->message, "the kernel failed, and left no exception");
}

/* What machine code calls in place of ONNX Runtime's own functions. */
static int64_t data_of(int64_t value, int64_t data) {
  *(void **)data = ((Tensor *)value)->data;
  return 0;
}
static int64_t output_of(int64_t context, int64_t index, int64_t sizes, int64_t rank, int64_t tensor) {
  Call *call = (Call *)context;
  Api api = call->node->api;
  Tensor *out = call->outputs + index;
  const int64_t *size = (const int64_t *)sizes;
  ((void **)tensor)[0] = NULL;
  if ((size_t)index >= call->node->outputs) return 0; /* the node leaves it out */
  if (!out->value) {
    int64_t dims[2 * MOST_DIMS], count = 0;
    for (int64_t i = 0; call->looped && i < call->lead_rank; i++) dims[count++] = call->lead[i];
    for (int64_t i = call->looped ? call->record->loops : 0; i < rank; i++) dims[count++] = size[i];
    for (int64_t i = 0; i < count; i++)
      if (dims[i] < 0)
        return (int64_t)create_status(api, "the shape function gives a negative size, or one known only after the kernel has run");
    Status *status = ORT(api, get_output)(call->context, (size_t)index, dims, (size_t)count, &out->value);
    if (!status && out->value) status = ORT(api, get_data)(out->value, &out->data);
    if (status || !out->value) return (int64_t)status;
  } else if (call->looped && out->rank != call->turn) {
    int64_t step = item_sizes[call->node->op->output[index].type];
    for (int64_t i = 0; i < rank; i++) step *= size[i];
    out->data = (char *)out->data + step;
  }
  out->rank = call->turn;
  ((void **)tensor)[0] = out;
  return 0;
}

typedef struct { Call *call; int64_t *words; } Job;
static void run_part(void *argument, size_t index) {
  Job *job = argument;
  int64_t answer;
  Raised *raised = NULL;
  if (atomic_load(&job->call->failed)) return;
  if (job->call->record->part(&answer, &raised, (int64_t)job->words, (int64_t)index)) note(job->call, raised);
}
static int64_t in_parallel(int64_t context, int64_t part, int64_t parts, int64_t batches, int64_t words) {
  Call *call = (Call *)context;
  Job job = {call, (int64_t *)words};
  Status *status = NULL;
  (void)part;
  if (ort >= HAS_PARALLEL_FOR)
    status = ORT(call->node->api, parallel_for)(call->context, run_part, (size_t)parts, (size_t)batches, &job);
  else
    for (int64_t i = 0; i < parts; i++) run_part(&job, (size_t)i);
  job.words[JOB_STOPPED] = atomic_load(&call->failed);
  return (int64_t)status;
}

static Status *run(Call *call) {
  const void *const state[] = {[GET_OUTPUT] = output_of, [GET_DATA] = data_of, [PARALLEL_FOR] = in_parallel};
  int64_t answer = 0, tensors[MOST_TENSORS][TENSOR_WORDS];
  for (size_t i = 0; i < call->node->inputs; i++) {
    tensors[i][DIMS] = (int64_t)call->inputs[i].dims;
    tensors[i][DATA] = (int64_t)call->inputs[i].data;
  }
  Raised *raised = NULL;
  Api api = call->node->api;
  if (call->record->body(&answer, &raised, (int64_t)state, (int64_t)call->words, (int64_t)call, (int64_t)tensors, 0, 0))
    note(call, raised);
  if (!atomic_load(&call->failed) && answer == MISMATCH) {
    atomic_store(&call->failed, 1);
    put(&call->message, "the kernel returned a shape other than the shape function gives");
  }
  return atomic_load(&call->failed) ? fail(api, call->node->op, &call->message) : (Status *)answer;
}

static int serves(const Record *record, const Call *call) {
  const Node *node = call->node;
  if (strcmp(record->attributes, node->attributes.text)) return 0;
  for (int i = 0; i < record->inputs || i < (int)node->inputs; i++) {
    const Tensor *given = i < (int)node->inputs && call->inputs[i].value ? call->inputs + i : NULL;
    const Kind *wanted = i < record->inputs && record->input[i].rank >= 0 ? record->input + i : NULL;
    if (!given != !wanted) return 0;
    if (!given) continue;
    if (given->type != wanted->type) return 0;
    if (record->core ? given->rank < record->core[i] : given->rank != wanted->rank) return 0;
  }
  return 1;
}

/* Broadcasts the dimensions of a call's inputs before the core ones into `lead`; `repeated` has a bit for each input that
   broadcasts along one. Returns whether they broadcast. */
static int broadcast(Call *call, uint64_t *repeated) {
  const Record *record = call->record;
  const Tensor *inputs = call->inputs;
  int64_t ranks = 0;
  for (int i = 0; i < record->inputs; i++)
    if (record->input[i].rank >= 0 && inputs[i].rank - record->core[i] > ranks) ranks = inputs[i].rank - record->core[i];
  call->looped = 1, call->lead_rank = ranks;
  for (int64_t axis = ranks; axis--;) {
    uint64_t mask = 0;
    int64_t wide = 1;
    for (int i = 0; i < record->inputs; i++) {
      if (record->input[i].rank < 0) continue;
      int64_t own = axis - (ranks - (inputs[i].rank - record->core[i])), here = own < 0 ? 1 : inputs[i].dims[own];
      if (here == 1) mask |= (uint64_t)1 << i;
      else if (wide != 1 && wide != here) {
        put(&call->message, "the inputs do not broadcast: %lld against %lld", (long long)wide, (long long)here);
        return 0;
      } else wide = here;
    }
    call->lead[axis] = wide, repeated[axis] = mask;
  }
  return 1;
}

/* Runs a record of an op with parallel=: neighbouring leading dimensions along which the inputs broadcast alike are
   taken as one; the innermost of these are the record's loops, and this function loops over the others. */
static Status *run_loops(Call *call) {
  const Op *op = call->node->op;
  const Record *record = call->record;
  Tensor *inputs = call->inputs;
  int64_t size[MOST_DIMS + 2] = {0}, total = 1, count = 0;
  uint64_t masks[MOST_DIMS], repeated[MOST_DIMS + 2] = {0};
  if (!broadcast(call, masks)) return fail(call->node->api, op, &call->message);
  for (int64_t axis = call->lead_rank; axis--;) {
    total *= call->lead[axis];
    if (call->lead[axis] == 1) continue;
    if (count && repeated[count - 1] == masks[axis]) size[count - 1] *= call->lead[axis];
    else repeated[count] = masks[axis], size[count++] = call->lead[axis];
  }
  if (!total) count = 1, size[0] = 0, repeated[0] = 0;
  for (const Record *next = record + 1; record->loops < count && next < op->record + op->records; next++)
    if (serves(next, call)) call->record = record = next;
  for (; count < record->loops; count++) size[count] = 1, repeated[count] = 0;
  int64_t steps[MOST_TENSORS], at[MOST_DIMS + 2] = {0};
  char *data[MOST_TENSORS];
  for (int i = 0; i < record->inputs; i++) {
    if (record->input[i].rank < 0) continue;
    int64_t core = record->core[i], own = inputs[i].rank - core;
    memmove(inputs[i].dims + record->loops, inputs[i].dims + own, (size_t)core * sizeof(int64_t));
    for (int64_t loop = 0; loop < record->loops; loop++)
      inputs[i].dims[record->loops - 1 - loop] = repeated[loop] >> i & 1 ? 1 : size[loop];
    inputs[i].rank = record->loops + core;
    steps[i] = item_sizes[inputs[i].type];
    for (int64_t axis = 0; axis < inputs[i].rank; axis++) steps[i] *= inputs[i].dims[axis];
    data[i] = inputs[i].data;
  }
  for (;;) {
    Status *status = run(call);
    if (status) return status;
    call->turn++;
    int64_t loop = record->loops;
    while (loop < count && ++at[loop] == size[loop]) at[loop++] = 0;
    if (loop >= count) return NULL;
    for (int i = 0; i < record->inputs; i++) {
      if (record->input[i].rank < 0) continue;
      int64_t offset = 0, step = steps[i];
      for (int64_t outer = record->loops; outer < count; outer++)
        if (!(repeated[outer] >> i & 1)) offset += at[outer] * step, step *= size[outer];
      inputs[i].data = data[i] + offset;
    }
  }
}

static void put_kinds(Text *text, const Record *record, const Call *call) {
  int count = record ? record->inputs : (int)call->node->inputs;
  put(text, "(");
  for (int i = 0; i < count; i++) {
    int absent = record ? record->input[i].rank < 0 : !call->inputs[i].value;
    put(text, i ? ", " : "");
    if (absent) put(text, "None");
    else if (!record) put(text, "%s of rank %d", type_name((int)call->inputs[i].type), (int)call->inputs[i].rank);
    else if (record->core) put(text, "%s of rank %d or more", type_name(record->input[i].type), record->core[i]);
    else put(text, "%s of rank %d", type_name(record->input[i].type), record->input[i].rank);
  }
  put(text, ")");
}
static Status *no_record(const Call *call) {
  const Op *op = call->node->op;
  Text said = {"", 0};
  put(&said, "this library has no code for ");
  put_kinds(&said, NULL, call);
  put(&said, "; build it with --for MODEL, or with --ranks. It has code for ");
  for (int r = 0, told = 0; r < op->records; r++) {
    if (strcmp(op->record[r].attributes, call->node->attributes.text)) continue;
    put(&said, told++ ? ", " : "");
    put_kinds(&said, op->record + r, call);
  }
  return fail(call->node->api, op, &said);
}

static Status *compute(void *pointer, void *context) {
  const Node *node = pointer;
  const Op *op = node->op;
  Call call;
  call.node = node, call.context = context, call.record = NULL, call.looped = 0, call.turn = 0, call.lead_rank = 0;
  call.message.length = 0, call.message.text[0] = 0;
  atomic_init(&call.failed, 0);
  if (node->inputs > MOST_TENSORS || node->outputs > MOST_TENSORS) {
    put(&call.message, "this library has no code for %d inputs and %d outputs; build it with --for MODEL",
        (int)node->inputs, (int)node->outputs);
    return fail(node->api, op, &call.message);
  }
  for (size_t i = 0; i < node->inputs; i++) {
    void *value = NULL;
    Status *status = ORT(node->api, get_input)(context, i, &value);
    call.inputs[i].value = NULL;
    if (!status && value) status = read_tensor(node->api, value, call.inputs + i);
    if (status) return status;
  }
  for (size_t i = 0; i < MOST_TENSORS; i++) call.outputs[i].value = NULL, call.outputs[i].rank = 0;
  for (int r = 0; r < op->records && !call.record; r++)
    if (serves(op->record + r, &call)) call.record = op->record + r;
  if (!call.record) return no_record(&call);
  call.words[RECORD_ATTRIBUTES] = (int64_t)node->words;
  return call.record->core ? run_loops(&call) : run(&call);
}

/* Shape inference. Unknown sizes of inputs are tried out: an output's size that is the same in all trials is known, and
   one that always equals an input's gets the name of that. */

enum { TRIALS = 6, ENOUGH = 3, MOST_NAMES = 64, UNKNOWN_SIZE = -1 };

/* What stands for an unknown size in a trial: even and odd, small and large, and in all trials but the first, different
   for each name. */
static int64_t tried(int64_t name, int trial) {
  static const int64_t first[TRIALS] = {1, 2, 12, 105, 1009, 1000003}, step[TRIALS] = {0, 6, 24, 30, 1000, 66};
  return first[trial] + name * step[trial];
}

/* Writes the sizes of all outputs, one after the other, for the inputs' sizes; returns whether the shape function
   accepts these. */
static int infer_sizes(Call *call, int64_t *sizes) {
  const Record *record = call->record;
  int64_t key[MOST_TENSORS * MOST_DIMS + 1], results[MOST_TENSORS * MOST_DIMS + 1], answer, at = 0, from = 0, to = 0;
  uint64_t masks[MOST_DIMS];
  Raised *raised = NULL;
  if (record->core && !broadcast(call, masks)) return call->message.length = 0;
  for (int i = 0; i < record->inputs; i++) {
    if (record->input[i].rank < 0) continue;
    int64_t core = record->core ? record->core[i] : call->inputs[i].rank;
    for (int loop = 0; record->core && loop < record->loops; loop++) key[at++] = 1;
    for (int64_t axis = call->inputs[i].rank - core; axis < call->inputs[i].rank; axis++) key[at++] = call->inputs[i].dims[axis];
  }
  if (record->shapes(&answer, &raised, (int64_t)key, (int64_t)results, (int64_t)call->node->words)) {
    Text unsaid = {"", 0};
    if (raised) put_raised(&unsaid, raised);
    return 0;
  }
  for (int o = 0; o < call->node->op->outputs; o++) {
    int64_t loops = record->core ? record->loops : 0;
    for (int64_t axis = 0; record->core && axis < call->lead_rank; axis++) sizes[to++] = call->lead[axis];
    for (int64_t axis = loops; axis < record->rank[o]; axis++) sizes[to++] = results[from + axis];
    from += record->rank[o];
  }
  return 1;
}

static Status *set_output(Api api, void *context, size_t index, int type, const int64_t *dims, const char **names, int64_t rank) {
  void *info;
  Status *status = ORT(api, make_type_and_shape)(&info);
  if (status) return status;
  status = ORT(api, set_element_type)(info, type);
  if (!status) status = ORT(api, set_dims)(info, dims, (size_t)rank);
  if (!status) status = ORT(api, set_names)(info, names, (size_t)rank);
  if (!status) status = ORT(api, infer_output)(context, index, info);
  release_type_and_shape(api, info);
  return status;
}

typedef struct {
  Call call;
  int64_t names, name[MOST_TENSORS][MOST_DIMS]; /* of each size, its number among those that are unknown; or -1 */
  const char *text[MOST_NAMES], *texts[MOST_DIMS];
  int64_t sizes[TRIALS][MOST_TENSORS * 2 * MOST_DIMS], dims[2 * MOST_DIMS];
  char made[2 * MOST_DIMS][40];
} Inference;

/* Reads an input; returns whether ONNX Runtime knows enough of it. It reports an unknown rank as 0. */
static int read_known(Api api, void *context, size_t index, Inference *own, Status **status) {
  Tensor *tensor = own->call.inputs + index;
  void *info;
  int type;
  size_t rank;
  tensor->value = NULL;
  *status = ORT(api, inferred_input)(context, index, &info);
  if (!*status) *status = ORT(api, get_element_type)(info, &type);
  if (*status) return 0;
  if (!type) return 1; /* an absent one */
  *status = ORT(api, get_rank)(info, &rank);
  if (*status || !rank || rank > MOST_DIMS) return 0;
  tensor->value = info, tensor->type = type, tensor->rank = (int64_t)rank;
  *status = ORT(api, get_dims)(info, tensor->dims, rank);
  if (!*status) *status = ORT(api, get_names)(info, own->texts, rank);
  for (size_t axis = 0; !*status && axis < rank; axis++) {
    const char *text = own->texts[axis] ? own->texts[axis] : "";
    int64_t name = 0;
    while (name < own->names && (!*text || strcmp(own->text[name], text))) name++;
    if (name == MOST_NAMES) return 0;
    if (tensor->dims[axis] >= 0) name = -1;
    else if (name == own->names) own->text[own->names++] = text;
    own->name[index][axis] = name;
  }
  return !*status;
}

static Status *infer_with(Inference *own, Node *node, void *context) {
  static atomic_int made;
  const Op *op = node->op;
  Call *call = &own->call;
  Api api = node->api;
  Status *status = ORT(api, inferred_count)(context, &node->inputs);
  if (status || node->inputs > MOST_TENSORS) return status;
  for (size_t i = 0; i < node->inputs; i++)
    if (!read_known(api, context, i, own, &status)) return status;
  status = read_attributes(node, (Source){NULL, context});
  if (status) return status;
  call->node = node;
  const Op *last = op + op->choices - 1;
  for (;; op++) {
    for (int r = 0; r < op->records && !call->record; r++)
      if (serves(op->record + r, call)) call->record = op->record + r;
    if (call->record || op == last) break;
  }
  if (!call->record || !call->record->shapes) return NULL;
  int trials = 0, wanted = own->names ? TRIALS : 1, at[TRIALS];
  for (int trial = 0; trial < wanted; trial++) {
    for (size_t i = 0; i < node->inputs; i++)
      for (int64_t axis = 0; call->inputs[i].value && axis < call->inputs[i].rank; axis++)
        if (own->name[i][axis] >= 0) call->inputs[i].dims[axis] = tried(own->name[i][axis], trial);
    at[trials] = trial;
    trials += infer_sizes(call, own->sizes[trials]);
  }
  if (!trials) return NULL;
  for (int64_t o = 0, from = 0; o < op->outputs && !status; o++) {
    int64_t rank = call->record->rank[o] + (call->record->core ? call->lead_rank - call->record->loops : 0);
    const char *names[2 * MOST_DIMS];
    for (int64_t axis = 0; axis < rank; axis++, from++) {
      int64_t found = own->sizes[0][from], name = -1;
      for (int t = 1; t < trials; t++) found = own->sizes[t][from] == found ? found : UNKNOWN_SIZE;
      if (trials < (wanted < ENOUGH ? wanted : ENOUGH)) found = UNKNOWN_SIZE;
      for (int64_t n = 0; found < 0 && trials >= ENOUGH && n < own->names && name < 0; n++) {
        int same = *own->text[n] != 0;
        for (int t = 0; t < trials; t++) same &= own->sizes[t][from] == tried(n, at[t]);
        if (same) name = n;
      }
      /* Equal names mean equal sizes, so each name is new, also among those of other libraries. */
      snprintf(own->made[axis], sizeof own->made[axis], "size_%llx_%d", (unsigned long long)(uintptr_t)&made, atomic_fetch_add(&made, 1));
      own->dims[axis] = found < 0 ? -1 : found;
      names[axis] = found >= 0 ? "" : name >= 0 ? own->text[name] : own->made[axis];
    }
    status = set_output(api, context, (size_t)o, op->output[o].type, own->dims, names, rank);
  }
  return status;
}

static int can_infer(const Op *op, int minor) {
  int told = 0, absent = op->outputs > 1;
  for (int c = 0; c < op->choices; c++)
    for (int r = 0; r < op[c].records; r++) told |= op[c].record[r].shapes != NULL;
  for (int i = 0; i < op->inputs; i++) absent |= op->input[i].characteristic != REQUIRED;
  for (int i = 0; i < op->attributes; i++)
    if (strchr("St", op->attribute[i].kind)) return 0; /* shape inference cannot read those */
  return told && op->outputs <= MOST_TENSORS && (!absent || minor >= INFERS_ABSENT);
}

/* A failure here is no error: if it matters, the kernel reports it when it runs. */
static Status *infer(const CustomOp *custom, void *context) {
  const Op *op = (const Op *)custom;
  Node *node = calloc(1, sizeof *node);
  Inference *own = calloc(1, sizeof *own);
  if (node && own) {
    node->api = shapes_api, node->op = op;
    Status *status = infer_with(own, node, context);
    if (status) release_status(shapes_api, status);
  }
  free(own);
  if (node) destroy(node);
  return NULL;
}

/* Answers. */

static const Op *as_op(const CustomOp *op) { return (const Op *)op; }
static const char *get_name(const CustomOp *op) { return as_op(op)->name; }
static const char *no_provider(const CustomOp *op) { return (void)op, NULL; }
static int input_type(const CustomOp *op, size_t i) { return as_op(op)->input[i].type; }
static int output_type(const CustomOp *op, size_t i) { return as_op(op)->output[i].type; }
static size_t inputs(const CustomOp *op) { return (size_t)as_op(op)->inputs; }
static size_t outputs(const CustomOp *op) { return (size_t)as_op(op)->outputs; }
static int input_characteristic(const CustomOp *op, size_t i) { return as_op(op)->input[i].characteristic; }
static int output_characteristic(const CustomOp *op, size_t i) { return as_op(op)->output[i].characteristic; }
static int default_memory(const CustomOp *op, size_t i) { return (void)op, (void)i, 0; }
static int zero(const CustomOp *op) { return (void)op, 0; }
static int one(const CustomOp *op) { return (void)op, 1; }
static int start_version(const CustomOp *op) { return as_op(op)->version; }
static int end_version(const CustomOp *op) { return as_op(op)->last_version; }
static void release_nothing(int *inputs, int *outputs) { (void)inputs, (void)outputs; }

#define CUSTOM_OP(in_place, release) \
  {0, NULL, get_name, no_provider, input_type, inputs, output_type, outputs, NULL, destroy, input_characteristic, \
   output_characteristic, default_memory, zero, one, zero, one, create, compute, NULL, start_version, end_version, in_place, \
   release, {NULL, NULL}}
#define COUNT(array) (sizeof array / sizeof *array)

#include TABLES /* ops, domains, description, features, CPU, HAS_TWO_VERSIONS */

/* The name of a feature that the code needs and this CPU lacks, or NULL. */
#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
static const char *lacking(void) {
  unsigned registers[4], low = 0, high = 0, keeps = 0;
  __cpuid(1, registers[0], registers[1], registers[2], registers[3]);
  if (registers[2] >> 27 & 1) { /* the system tells which registers it keeps */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    keeps = low;
  }
  for (size_t i = 0; i < COUNT(features) && features[i].name; i++) {
    const Feature *feature = features + i;
    if (!__get_cpuid_count(feature->leaf, feature->part, registers, registers + 1, registers + 2, registers + 3)) return feature->name;
    if (!(registers[feature->place - 'a'] >> feature->bit & 1)) return feature->name;
    if (!strncmp(feature->name, "avx512", 6) && (keeps & 0xE6) != 0xE6) return feature->name;
    if (!strncmp(feature->name, "avx", 3) && (keeps & 6) != 6) return feature->name;
  }
  return NULL;
}
#else
static const char *lacking(void) { return (void)features, NULL; }
#endif

EXPORT Status *RegisterCustomOps(void *options, const ApiBase *base) {
  static void *made[COUNT(domains)]; /* once for all sessions, whichever thread comes first */
  static const ApiBase *made_for;
  static atomic_flag busy = ATOMIC_FLAG_INIT;
  int major = 0, minor = 0;
  Text said = {"", 0};
  sscanf(base->get_version(), "%d.%d", &major, &minor);
  int oldest = HAS_TWO_VERSIONS ? HAS_VERSIONS : OLDEST;
  if (major > 1) minor = 1000;
  if (minor < oldest) put(&said, "these operators need ONNX Runtime 1.%d or later; this is %s", oldest, base->get_version());
  const char *feature = lacking();
  if (feature) put(&said, "these operators were built for CPUs like %s, and this one has no %s; build them with another --cpu", CPU, feature);
  int version = minor > NEWEST ? NEWEST : minor;
  Api api = base->get_api(said.length ? 1 : (uint32_t)version);
  if (said.length) return create_status(api, said.text);
  Status *status = NULL;
  while (atomic_flag_test_and_set(&busy)) {}
  ort = version, shapes_api = api;
  for (size_t d = 0; d < COUNT(domains) && !status; d++) {
    if (made_for != base) {
      status = ORT(api, create_domain)(domains[d].name, made + d);
      for (size_t i = 0; i < COUNT(ops) && !status; i++) {
        if (strcmp(ops[i].domain, domains[d].name)) continue;
        ops[i].op.version = (uint32_t)(version < 22 ? version : 22); /* later ones have no fields that are used here */
        ops[i].op.infer_shapes = can_infer(ops + i, minor) ? infer : NULL;
        status = ORT(api, domain_add)(made[d], &ops[i].op);
      }
    }
    if (!status) status = ORT(api, add_domain)(options, made[d]);
    /* Sessions of pyops with these options read there which ops are not theirs. */
    Text key = {"", 0};
    put(&key, "pyops.library.%s", domains[d].name);
    if (!status) release_status(api, ORT(api, add_config_entry)(options, key.text, domains[d].ops)); /* of thousands of letters at most */
  }
  if (!status) made_for = base;
  atomic_flag_clear(&busy);
  return status;
}
