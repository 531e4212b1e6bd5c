/* Columns handed over by the Arrow C data interface: a schema, and a stream of one batch.
 *
 * Rules of this file: knows nothing of rings. What is handed over keeps its buffers alive until the
 * consumer releases it, on whatever thread that is. */

#include "_native.h"

#include <errno.h>

typedef struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
} ArrowSchema;

typedef struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
} ArrowArray;

typedef struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
} ArrowArrayStream;

enum { NULLABLE = 2 };

static void release_schema(ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        ArrowSchema *child = schema->children[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        PyMem_RawFree(child);
    }
    PyMem_RawFree(schema->children);
    if (schema->dictionary != NULL && schema->dictionary->release != NULL)
        schema->dictionary->release(schema->dictionary);
    PyMem_RawFree(schema->dictionary);
    PyMem_RawFree(schema->private_data);
    schema->release = NULL;
}

/* One field, whose texts it keeps itself. */
static int fill_schema(ArrowSchema *schema, const char *name, const char *format, int64_t n_children)
{
    memset(schema, 0, sizeof *schema);
    size_t name_size = strlen(name) + 1, format_size = strlen(format) + 1;
    char *texts = PyMem_RawMalloc(name_size + format_size);
    if (n_children > 0)
        schema->children = PyMem_RawCalloc((size_t)n_children, sizeof(ArrowSchema *));
    if (texts == NULL || (n_children > 0 && schema->children == NULL)) {
        PyMem_RawFree(texts);
        PyMem_RawFree(schema->children);
        return ENOMEM;
    }
    memcpy(texts, name, name_size);
    memcpy(texts + name_size, format, format_size);
    schema->name = texts;
    schema->format = texts + name_size;
    schema->flags = NULLABLE;
    schema->n_children = n_children;
    schema->private_data = texts;
    schema->release = release_schema;
    return 0;
}

/* What a stream was made of: the fields as (name, format) and the columns. Under the lock. */
typedef struct {
    int64_t n_columns, length;
    char **names, **formats;
    struct Held *held;
    int is_read;
} Stream;

/* The buffers of one column; `words` are those of its dictionary. */
typedef struct {
    int64_t null_count, n_words, n_nulls;
    Py_buffer validity, data, offsets, letters, are_words;
} Column;

/* All columns of a batch; let go of with the last array that refers to it. */
typedef struct Held {
    int64_t n_columns;
    Column *columns;
    int64_t n_users; /* under the lock */
} Held;

static int schema_of(const Stream *stream, ArrowSchema *out)
{
    if (fill_schema(out, "", "+s", stream->n_columns) != 0)
        return ENOMEM;
    for (int64_t i = 0; i < stream->n_columns; i++) {
        int has_words = strcmp(stream->formats[i], "u") == 0;
        ArrowSchema *child = out->children[i] = PyMem_RawCalloc(1, sizeof *child);
        if (child == NULL
            || fill_schema(child, stream->names[i], has_words ? "i" : stream->formats[i], 0) != 0)
            goto failed;
        if (has_words) {
            child->dictionary = PyMem_RawCalloc(1, sizeof *child->dictionary);
            if (child->dictionary == NULL || fill_schema(child->dictionary, "", "u", 0) != 0)
                goto failed;
        }
    }
    return 0;
failed:
    release_schema(out);
    return ENOMEM;
}

static void let_go(Held *held)
{
    PyGILState_STATE lock = PyGILState_Ensure();
    if (--held->n_users == 0) {
        for (int64_t i = 0; i < held->n_columns; i++) {
            Column *column = &held->columns[i];
            PyBuffer_Release(&column->validity);
            PyBuffer_Release(&column->data);
            PyBuffer_Release(&column->offsets);
            PyBuffer_Release(&column->letters);
            PyBuffer_Release(&column->are_words);
        }
        PyMem_RawFree(held->columns);
        PyMem_RawFree(held);
    }
    PyGILState_Release(lock);
}

static void release_array(ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        ArrowArray *child = array->children[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        PyMem_RawFree(child);
    }
    PyMem_RawFree(array->children);
    if (array->dictionary != NULL && array->dictionary->release != NULL)
        array->dictionary->release(array->dictionary);
    PyMem_RawFree(array->dictionary);
    PyMem_RawFree(array->buffers);
    array->release = NULL;
    if (array->private_data != NULL)
        let_go(array->private_data);
}

/* An array that keeps the columns; under the lock. */
static int fill_array(ArrowArray *array, Held *held, int64_t length, int64_t null_count,
                      int64_t n_buffers, int64_t n_children)
{
    memset(array, 0, sizeof *array);
    array->buffers = PyMem_RawCalloc((size_t)n_buffers, sizeof(void *));
    if (n_children > 0)
        array->children = PyMem_RawCalloc((size_t)n_children, sizeof(ArrowArray *));
    if (array->buffers == NULL || (n_children > 0 && array->children == NULL)) {
        PyMem_RawFree(array->buffers);
        PyMem_RawFree(array->children);
        return ENOMEM;
    }
    array->length = length;
    array->null_count = null_count;
    array->n_buffers = n_buffers;
    array->n_children = n_children;
    array->private_data = held;
    array->release = release_array;
    held->n_users++;
    return 0;
}

static int array_of(const Stream *stream, ArrowArray *out)
{
    if (fill_array(out, stream->held, stream->length, 0, 1, stream->n_columns) != 0)
        return ENOMEM;
    for (int64_t i = 0; i < stream->n_columns; i++) {
        Column *column = &stream->held->columns[i];
        ArrowArray *child = out->children[i] = PyMem_RawCalloc(1, sizeof *child);
        if (child == NULL
            || fill_array(child, stream->held, stream->length, column->null_count, 2, 0) != 0)
            goto failed;
        child->buffers[0] = column->validity.buf;
        child->buffers[1] = column->data.buf;
        if (strcmp(stream->formats[i], "u") == 0) {
            ArrowArray *words = child->dictionary = PyMem_RawCalloc(1, sizeof *words);
            if (words == NULL || fill_array(words, stream->held, column->n_words, column->n_nulls, 3, 0) != 0)
                goto failed;
            words->buffers[0] = column->are_words.buf;
            words->buffers[1] = column->offsets.buf;
            words->buffers[2] = column->letters.buf;
        }
    }
    return 0;
failed:
    release_array(out);
    return ENOMEM;
}

static int get_schema(ArrowArrayStream *stream, ArrowSchema *out)
{
    return schema_of(stream->private_data, out);
}

static int get_next(ArrowArrayStream *stream, ArrowArray *out)
{
    Stream *own = stream->private_data;
    memset(out, 0, sizeof *out);
    PyGILState_STATE lock = PyGILState_Ensure();
    int failed = 0;
    if (!own->is_read) {
        own->is_read = 1;
        failed = array_of(own, out);
    }
    PyGILState_Release(lock);
    return failed;
}

static const char *get_last_error(ArrowArrayStream *stream)
{
    (void)stream;
    return NULL;
}

static void free_stream(Stream *own)
{
    for (int64_t i = 0; i < own->n_columns; i++) {
        if (own->names != NULL)
            PyMem_RawFree(own->names[i]);
        if (own->formats != NULL)
            PyMem_RawFree(own->formats[i]);
    }
    PyMem_RawFree(own->names);
    PyMem_RawFree(own->formats);
    if (own->held != NULL)
        let_go(own->held);
    PyMem_RawFree(own);
}

static void release_stream(ArrowArrayStream *stream)
{
    free_stream(stream->private_data);
    stream->release = NULL;
}

static char *copy_of(PyObject *text)
{
    Py_ssize_t size;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    char *copy = utf8 == NULL ? NULL : PyMem_RawMalloc((size_t)size + 1);
    if (copy != NULL)
        memcpy(copy, utf8, (size_t)size + 1);
    else if (utf8 != NULL)
        PyErr_NoMemory();
    return copy;
}

/* The names and formats of `fields`, a sequence of pairs. */
static Stream *stream_of(PyObject *fields)
{
    PyObject *pairs = PySequence_Fast(fields, "fields are pairs of texts");
    if (pairs == NULL)
        return NULL;
    Stream *own = PyMem_RawCalloc(1, sizeof *own);
    size_t count = (size_t)PySequence_Fast_GET_SIZE(pairs);
    if (own != NULL) {
        own->names = PyMem_RawCalloc(count + 1, sizeof(char *));
        own->formats = PyMem_RawCalloc(count + 1, sizeof(char *));
        if (own->names != NULL && own->formats != NULL)
            own->n_columns = (int64_t)count;
    }
    if (own == NULL || own->names == NULL || own->formats == NULL)
        PyErr_NoMemory();
    for (int64_t i = 0; !PyErr_Occurred() && i < own->n_columns; i++) {
        PyObject *name, *format;
        if (PyArg_ParseTuple(PySequence_Fast_GET_ITEM(pairs, i), "UU", &name, &format)) {
            own->names[i] = copy_of(name);
            own->formats[i] = own->names[i] == NULL ? NULL : copy_of(format);
        }
    }
    Py_DECREF(pairs);
    if (PyErr_Occurred()) {
        if (own != NULL)
            free_stream(own);
        return NULL;
    }
    return own;
}

static void drop_schema(PyObject *capsule)
{
    ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release != NULL)
        schema->release(schema);
    PyMem_RawFree(schema);
}

static void drop_stream(PyObject *capsule)
{
    ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (stream->release != NULL)
        stream->release(stream);
    PyMem_RawFree(stream);
}

static PyObject *arrow_schema(PyObject *module, PyObject *fields)
{
    (void)module;
    Stream *own = stream_of(fields);
    if (own == NULL)
        return NULL;
    ArrowSchema *schema = PyMem_RawCalloc(1, sizeof *schema);
    int failed = schema == NULL ? ENOMEM : schema_of(own, schema);
    free_stream(own);
    if (failed) {
        PyMem_RawFree(schema);
        return PyErr_NoMemory();
    }
    return PyCapsule_New(schema, "arrow_schema", drop_schema);
}

/* Take the buffers of one column: (null_count, validity or None, data, words or None); words are
 * (count, offsets, letters, nulls, validity or None). Sizes are compared with the length, so that no reader is led outside. */
static int take_column(Column *column, PyObject *given, const char *format, int64_t length)
{
    PyObject *validity, *words;
    if (!PyArg_ParseTuple(given, "LOy*O", &column->null_count, &validity, &column->data, &words))
        return -1;
    if (validity != Py_None && PyObject_GetBuffer(validity, &column->validity, PyBUF_SIMPLE) != 0)
        return -1;
    int64_t bytes = length * 8;
    if (format[0] == 'u')
        bytes = length * 4;
    else if (format[0] == 'b')
        bytes = (length + 7) / 8;
    int is_short = column->data.len < bytes
        || (validity != Py_None && column->validity.len < (length + 7) / 8);
    if (format[0] == 'u' && words != Py_None) {
        PyObject *are_words;
        if (!PyArg_ParseTuple(words, "Ly*y*LO", &column->n_words, &column->offsets,
                              &column->letters, &column->n_nulls, &are_words)
            || (are_words != Py_None
                && PyObject_GetBuffer(are_words, &column->are_words, PyBUF_SIMPLE) != 0))
            return -1;
        is_short |= column->n_words < 0 || column->offsets.len < (column->n_words + 1) * 4
            || (are_words != Py_None && column->are_words.len < (column->n_words + 7) / 8);
    }
    if (is_short || (format[0] == 'u') != (words != Py_None)) {
        PyErr_SetString(PyExc_ValueError, "a column's buffers do not fit its length");
        return -1;
    }
    return 0;
}

static PyObject *arrow_stream(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *fields, *columns;
    long long length;
    if (!PyArg_ParseTuple(arguments, "OLO!", &fields, &length, &PyTuple_Type, &columns))
        return NULL;
    Stream *own = stream_of(fields);
    if (own == NULL)
        return NULL;
    if (PyTuple_GET_SIZE(columns) != own->n_columns || length < 0) {
        PyErr_SetString(PyExc_ValueError, "a stream has one column for each field");
        free_stream(own);
        return NULL;
    }
    Held *held = own->held = PyMem_RawCalloc(1, sizeof *held);
    if (held != NULL) {
        held->n_users = 1;
        held->columns = PyMem_RawCalloc((size_t)own->n_columns + 1, sizeof(Column));
        held->n_columns = held->columns == NULL ? 0 : own->n_columns;
    }
    ArrowArrayStream *stream = PyMem_RawCalloc(1, sizeof *stream);
    if (held == NULL || held->columns == NULL || stream == NULL)
        PyErr_NoMemory();
    own->length = length;
    for (int64_t i = 0; !PyErr_Occurred() && i < own->n_columns; i++)
        take_column(&held->columns[i], PyTuple_GET_ITEM(columns, i), own->formats[i], length);
    if (PyErr_Occurred()) {
        free_stream(own);
        PyMem_RawFree(stream);
        return NULL;
    }
    *stream = (ArrowArrayStream){get_schema, get_next, get_last_error, release_stream, own};
    return PyCapsule_New(stream, "arrow_array_stream", drop_stream);
}

PyMethodDef arrow_functions[] = {
    {"arrow_schema", arrow_schema, METH_O, "A capsule of the schema of some fields."},
    {"arrow_stream", arrow_stream, METH_VARARGS, "A capsule of a stream of one batch."},
    {NULL, NULL, 0, NULL},
};
