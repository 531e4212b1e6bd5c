/* A ring's slots read from its file, and the columns of its rows made of what was read.
 *
 * Rules of this file: as reader.py, whose pieces it does: `pread` only, and no length and no marker
 * is trusted. The buffers are Python's; their sizes are looked at before anything is written. The
 * interpreter lock is let go of while a piece is read. */

#include "_native.h"

#include <errno.h>
#include <unistd.h>

enum { OPEN_STATE = 0, FAILED_STATE = 2, MOST_COLUMNS = 512 };

typedef struct {
    int fd;
    int64_t row_size, capacity, hint;
    int64_t *numbers;
    uint8_t *states, *empty;
    int64_t n_columns;
    int64_t offsets[MOST_COLUMNS], widths[MOST_COLUMNS];
    uint8_t *columns[MOST_COLUMNS];
} Scan;

/* Read slots from `slot` on; how many bytes there were, or -1. */
static int64_t fill(const Scan *scan, uint8_t *into, int64_t size, int64_t slot)
{
    int64_t done = 0, from = HEADER_SIZE + slot * scan->row_size;
    while (done < size) {
        ssize_t got = pread(scan->fd, into + done, (size_t)(size - done), from + done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += got;
    }
    return done;
}

static int is_zero(const uint8_t *bytes, int64_t size)
{
    uint64_t word = 0;
    for (int64_t i = 0; i + 8 <= size && word == 0; i += 8)
        memcpy(&word, bytes + i, 8);
    return word == 0;
}

/* Take over one row whose two readings are the same or not, and which is not as expected. */
static void judge(const Scan *scan, const uint8_t *row, int is_same, int64_t at, int64_t slot)
{
    uint64_t begin, end;
    memcpy(&begin, row, 8);
    memcpy(&end, row + scan->row_size - 8, 8);
    int64_t number = (int64_t)begin >> 2;
    int right = is_same && (begin ^ end) <= FAILED_STATE && (begin & 3) == 0 && number > 0
        && number % scan->capacity == slot;
    scan->numbers[at] = right ? number : 0;
    scan->states[at] = (uint8_t)(end & 3);
    scan->empty[at] = !right && is_same && is_zero(row, scan->row_size);
}

static void copy_column(uint8_t *to, const uint8_t *from, int64_t step, int64_t width, int64_t rows)
{
    if (width == 8)
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * 8, from + i * step, 8);
    else if (width == 4)
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * 4, from + i * step, 4);
    else if (width == 1)
        for (int64_t i = 0; i < rows; i++)
            to[i] = from[i * step];
    else
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * width, from + i * step, (size_t)width);
}

/* Read a piece twice and take over its rows; 0, or an error number. */
static int read_piece(const Scan *scan, uint8_t *first, uint8_t *second, int64_t at, int64_t slot,
                      int64_t count)
{
    int64_t size = count * scan->row_size, got = fill(scan, first, size, slot);
    if (got == size && is_zero(first, size)) {
        memset(scan->numbers + at, 0, (size_t)count * 8);
        memset(scan->empty + at, 1, (size_t)count);
        return 0;
    }
    int64_t again = got < 0 ? -1 : fill(scan, second, size, slot);
    if (again < 0)
        return errno;
    int64_t rows = (got < again ? got : again) / scan->row_size;
    int is_same = memcmp(first, second, (size_t)(rows * scan->row_size)) == 0;
    int64_t expected = scan->hint - (scan->hint - slot) % scan->capacity;
    if (scan->hint < slot || expected <= 0)
        expected = INT64_MIN / 8;
    for (int64_t i = 0; i < rows; i++, expected++) {
        const uint8_t *row = first + i * scan->row_size;
        uint64_t begin, end, word = (uint64_t)expected * 4;
        memcpy(&begin, row, 8);
        memcpy(&end, row + scan->row_size - 8, 8);
        if (is_same && begin == word && end - begin <= FAILED_STATE && expected > 0) {
            scan->numbers[at + i] = expected;
            scan->states[at + i] = (uint8_t)(end & 3);
            scan->empty[at + i] = 0;
            continue;
        }
        int same = is_same
            || memcmp(row, second + i * scan->row_size, (size_t)scan->row_size) == 0;
        judge(scan, row, same, at + i, slot + i);
    }
    for (int64_t i = 0; i < scan->n_columns; i++)
        copy_column(scan->columns[i] + at * scan->widths[i], first + scan->offsets[i],
                    scan->row_size, scan->widths[i], rows);
    memset(scan->numbers + at + rows, 0, (size_t)(count - rows) * 8);
    memset(scan->empty + at + rows, 0, (size_t)(count - rows));
    return 0;
}

/* read_slots(fd, row_size, capacity, hint, at, slot, count, step, numbers, states, empty, columns):
 * read `count` slots from `slot` on, and put what they hold from the place `at` on; `hint` is about
 * the newest number. */
static PyObject *read_slots(PyObject *module, PyObject *arguments)
{
    (void)module;
    Scan scan = {0};
    long long row_size, capacity, hint, at, slot, count, step;
    Py_buffer numbers, states, empty, buffers[MOST_COLUMNS];
    PyObject *columns;
    if (!PyArg_ParseTuple(arguments, "iLLLLLLLw*w*w*O!", &scan.fd, &row_size, &capacity, &hint, &at,
                          &slot, &count, &step, &numbers, &states, &empty, &PyTuple_Type, &columns))
        return NULL;
    int error = 0;
    int64_t places = states.len, taken = 0;
    scan.row_size = row_size;
    scan.capacity = capacity;
    scan.hint = hint;
    scan.numbers = numbers.buf;
    scan.states = states.buf;
    scan.empty = empty.buf;
    int fits = row_size >= 16 && row_size <= 4096 && capacity > 0 && at >= 0 && slot >= 0
        && count >= 0 && step > 0 && at + count <= places && numbers.len >= places * 8
        && empty.len >= places && PyTuple_GET_SIZE(columns) <= MOST_COLUMNS;
    for (; fits && taken < PyTuple_GET_SIZE(columns); taken++) {
        long long offset, width;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(columns, taken), "LLw*", &offset, &width,
                              &buffers[taken])) {
            fits = -1;
            break;
        }
        scan.offsets[taken] = offset;
        scan.widths[taken] = width;
        scan.columns[taken] = buffers[taken].buf;
        if (offset < 0 || width < 1 || offset + width > row_size
            || buffers[taken].len < places * width) {
            fits = 0;
            taken++;
            break;
        }
    }
    scan.n_columns = taken;
    uint8_t *pieces = NULL;
    if (fits > 0) {
        if (step > count)
            step = count > 0 ? count : 1;
        pieces = PyMem_RawMalloc((size_t)(2 * step * row_size));
        if (pieces == NULL)
            PyErr_NoMemory();
    } else if (fits == 0)
        PyErr_SetString(PyExc_ValueError, "the buffers do not fit the ring");
    if (pieces != NULL) {
        Py_BEGIN_ALLOW_THREADS
        for (int64_t done = 0; done < count && error == 0; done += step) {
            int64_t some = count - done < step ? count - done : step;
            error = read_piece(&scan, pieces, pieces + step * row_size, at + done, slot + done, some);
        }
        Py_END_ALLOW_THREADS
        if (error != 0) {
            errno = error;
            PyErr_SetFromErrno(PyExc_OSError);
        }
    }
    PyMem_RawFree(pieces);
    for (int64_t i = 0; i < taken; i++)
        PyBuffer_Release(&buffers[i]);
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&states);
    PyBuffer_Release(&empty);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* most(numbers): the greatest of them; 0 for none. */
static PyObject *most(PyObject *module, PyObject *given)
{
    (void)module;
    Py_buffer numbers;
    if (PyObject_GetBuffer(given, &numbers, PyBUF_SIMPLE) != 0)
        return NULL;
    const int64_t *values = numbers.buf;
    int64_t found = 0;
    for (int64_t i = 0; i < numbers.len / 8; i++)
        found = values[i] > found ? values[i] : found;
    PyBuffer_Release(&numbers);
    return PyLong_FromLongLong(found);
}

/* forget(numbers, number): whatever holds this number holds none. */
static PyObject *forget(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer numbers;
    long long number;
    if (!PyArg_ParseTuple(arguments, "w*L", &numbers, &number))
        return NULL;
    int64_t *values = numbers.buf;
    for (int64_t i = 0; i < numbers.len / 8; i++)
        if (values[i] == number)
            values[i] = 0;
    PyBuffer_Release(&numbers);
    Py_RETURN_NONE;
}

/* missing(numbers, empty, newest, capacity, start, stop): runs of places where a row should be and is
 * not, as (place, slot, count). Places follow the slots from `start` to `stop`, then those from 0. */
static PyObject *missing(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer numbers, empty;
    long long newest, capacity, start, stop;
    if (!PyArg_ParseTuple(arguments, "y*y*LLLL", &numbers, &empty, &newest, &capacity, &start, &stop))
        return NULL;
    const int64_t *held = numbers.buf;
    const uint8_t *never = empty.buf;
    int64_t places = empty.len, oldest = newest > capacity ? newest - capacity : 0, found = 0, odd = 0;
    for (int64_t i = 0; i < places; i++) {
        found += held[i] > oldest;
        odd += held[i] <= oldest && !never[i];
    }
    PyObject *runs = PyList_New(0);
    if (runs != NULL && (found != (newest < capacity ? newest : capacity) || odd > 0)) {
        for (int64_t i = 0, first = 0, count = 0; i <= places; i++) {
            int64_t slot = i < stop - start ? start + i : i - (stop - start);
            int is_missing = i < places && held[i] <= oldest
                && (newest >= capacity || !never[i] || (slot > 0 && slot <= newest));
            int breaks = count > 0 && (!is_missing || i == stop - start);
            if (breaks) {
                int64_t from = first < stop - start ? start + first : first - (stop - start);
                PyObject *run = Py_BuildValue("LLL", (long long)first, (long long)from,
                                              (long long)count);
                if (run == NULL || PyList_Append(runs, run) != 0)
                    Py_CLEAR(runs);
                Py_XDECREF(run);
                if (runs == NULL)
                    break;
                count = 0;
            }
            if (is_missing && count++ == 0)
                first = i;
        }
    }
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&empty);
    return runs;
}

typedef struct {
    int64_t number, place;
} Found;

static int by_number(const void *left, const void *right)
{
    const Found *a = left, *b = right;
    return a->number != b->number ? (a->number < b->number ? -1 : 1)
                                  : (a->place > b->place) - (a->place < b->place);
}

/* order(numbers, empty, oldest, newest, start, stop): the places of the rows above `oldest` by their
 * numbers, as (first, count, places): `places` is None where they stand side by side. And how many
 * are damaged in slots that lie beyond the newest. */
static PyObject *order(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer numbers, empty;
    long long oldest, newest, start, stop;
    if (!PyArg_ParseTuple(arguments, "y*y*LLLL", &numbers, &empty, &oldest, &newest, &start, &stop))
        return NULL;
    const int64_t *held = numbers.buf;
    const uint8_t *never = empty.buf;
    int64_t places = empty.len, count = 0, first = 0, last = -1, before = 0, ahead = 0;
    int is_ordered = 1;
    for (int64_t i = 0; i < places; i++) {
        if (held[i] > oldest) {
            first = count == 0 ? i : first;
            is_ordered &= held[i] > before && (count == 0 || last == i - 1);
            before = held[i];
            last = i;
            count++;
        } else if (!never[i])
            ahead += (i < stop - start ? start + i : i - (stop - start)) > newest;
    }
    PyObject *result = NULL, *index = NULL;
    Found *found = NULL;
    if (is_ordered)
        result = Py_BuildValue("LLOL", (long long)first, (long long)count, Py_None, (long long)ahead);
    else {
        found = PyMem_RawMalloc((size_t)count * sizeof *found);
        index = PyByteArray_FromStringAndSize(NULL, count * 8);
        if (found == NULL)
            PyErr_NoMemory();
        else if (index != NULL) {
            for (int64_t i = 0, at = 0; i < places; i++)
                if (held[i] > oldest)
                    found[at++] = (Found){held[i], i};
            qsort(found, (size_t)count, sizeof *found, by_number);
            int64_t *into = (int64_t *)PyByteArray_AS_STRING(index);
            for (int64_t i = 0; i < count; i++)
                into[i] = found[i].place;
            result = Py_BuildValue("LLOL", 0LL, (long long)count, index, (long long)ahead);
        }
    }
    PyMem_RawFree(found);
    Py_XDECREF(index);
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&empty);
    return result;
}

/* What `decode` makes of a column. */
enum { AS_INT = 'l', AS_FLOAT = 'g', AS_BOOL = 'b', AS_NAME = 'n', AS_WORD = 'e', AS_SCALED = 's',
       AS_FAILED = 'f', AS_PLAIN = 'p' };

static inline __attribute__((always_inline)) int64_t value_at(const uint8_t *raw, int64_t width, int64_t place)
{
    int64_t wide;
    uint32_t narrow;
    if (width == 8) {
        memcpy(&wide, raw + place * 8, 8);
        return wide;
    }
    if (width == 4) {
        memcpy(&narrow, raw + place * 4, 4);
        return narrow;
    }
    return raw[place];
}

typedef struct {
    int kind;
    int64_t width, limit, null_int, add;
    uint64_t null_float;
    double factor;
} How;

/* One value into its place; whether it is NULL. */
static inline __attribute__((always_inline)) int put(const How *how, int kind, int64_t width, uint8_t *data, int64_t i,
                                                  int64_t value)
{
    int32_t index = 0;
    double scaled;
    switch (kind) {
    case AS_INT: {
        int is_null = width == 8 && value == how->null_int;
        int64_t moved = (int64_t)((uint64_t)value + (uint64_t)how->add);
        memcpy(data + i * 8, &moved, 8);
        return is_null;
    }
    case AS_FLOAT:
        memcpy(data + i * 8, &value, 8);
        return (uint64_t)value == how->null_float;
    case AS_SCALED:
        scaled = (double)value * how->factor;
        memcpy(data + i * 8, &scaled, 8);
        return width == 8 && value == how->null_int;
    case AS_BOOL:
        data[i >> 3] |= (uint8_t)((value == 1) << (i & 7));
        return value >= 2;
    case AS_FAILED:
        data[i >> 3] |= (uint8_t)((value == FAILED_STATE) << (i & 7));
        return value == OPEN_STATE;
    case AS_NAME: {
        int is_null = value == 0 || value > how->limit;
        index = is_null ? 0 : (int32_t)(value - 1);
        memcpy(data + i * 4, &index, 4);
        return is_null;
    }
    case AS_WORD: {
        int is_null = value >= how->limit;
        index = is_null ? 0 : (int32_t)value;
        memcpy(data + i * 4, &index, 4);
        return is_null;
    }
    default:
        memcpy(data + i * 8, &value, 8);
        return 0;
    }
}

typedef struct {
    const uint8_t *raw, *states;
    const int64_t *places;
    int64_t first, count;
    uint8_t *data, *valid;
} Shown;

/* All values of one kind and width, which the compiler makes loops of their own of; how many are
 * NULL. */
static inline __attribute__((always_inline)) int64_t put_all(const How *how, const Shown *rows,
                                                             int kind, int64_t width)
{
    int64_t nulls = 0;
    unsigned bits = 0;
    for (int64_t i = 0; i < rows->count; i++) {
        int64_t place = rows->places == NULL ? rows->first + i : rows->places[i];
        int is_null = put(how, kind, width, rows->data, i, value_at(rows->raw, width, place))
            | (rows->states != NULL && (rows->states[place] & 3) == OPEN_STATE);
        nulls += is_null;
        bits |= (unsigned)!is_null << (i & 7);
        if ((i & 7) == 7 || i + 1 == rows->count) {
            rows->valid[i >> 3] = (uint8_t)bits;
            bits = 0;
        }
    }
    return nulls;
}

static int64_t put_rows(const How *how, const Shown *rows)
{
    int is_wide = how->width == 8;
    switch (how->kind) {
    case AS_INT:
        return is_wide ? put_all(how, rows, AS_INT, 8) : put_all(how, rows, AS_INT, how->width);
    case AS_SCALED:
        return is_wide ? put_all(how, rows, AS_SCALED, 8)
                       : put_all(how, rows, AS_SCALED, how->width);
    case AS_FLOAT:
        return put_all(how, rows, AS_FLOAT, 8);
    case AS_NAME:
        return put_all(how, rows, AS_NAME, 4);
    case AS_WORD:
        return put_all(how, rows, AS_WORD, 1);
    default:
        return put_all(how, rows, how->kind, how->width);
    }
}

/* decode(kind, width, raw, states or None, first, count, places or None, limit, null_int, null_float,
 * add, factor): the (null_count, validity or None, data) of a column; where `states` are given, the
 * rows that are open are NULL. */
static PyObject *decode(PyObject *module, PyObject *arguments)
{
    (void)module;
    How how;
    long long width, first, count, limit, null_int, add;
    unsigned long long null_float;
    Py_buffer raw, open = {0}, index = {0};
    PyObject *states, *places;
    if (!PyArg_ParseTuple(arguments, "CLy*OLLOLLKLd", &how.kind, &width, &raw, &states, &first, &count,
                          &places, &limit, &null_int, &null_float, &add, &how.factor))
        return NULL;
    how.width = width;
    how.limit = limit;
    how.null_int = null_int;
    how.null_float = null_float;
    how.add = add;
    PyObject *data = NULL, *validity = NULL, *result = NULL;
    if ((states != Py_None && PyObject_GetBuffer(states, &open, PyBUF_SIMPLE) != 0)
        || (places != Py_None && PyObject_GetBuffer(places, &index, PyBUF_SIMPLE) != 0))
        goto done;
    int64_t there = width > 0 ? raw.len / width : 0;
    const int64_t *order_of = index.buf;
    int64_t least = how.kind == AS_FLOAT || how.kind == AS_PLAIN ? 8 : how.kind == AS_NAME ? 4 : 1;
    int fits = (width == 1 || width == 4 || width == 8) && width >= least
        && (how.kind != AS_NAME || width == 4) && (how.kind != AS_WORD || width == 1) && first >= 0 && count >= 0
        && (order_of == NULL ? first + count <= there : index.len >= count * 8)
        && (states == Py_None || open.len >= there);
    for (int64_t i = 0; fits && order_of != NULL && i < count; i++)
        fits = order_of[i] >= 0 && order_of[i] < there;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the buffers do not fit the rows");
        goto done;
    }
    int is_bits = how.kind == AS_BOOL || how.kind == AS_FAILED;
    int is_index = how.kind == AS_NAME || how.kind == AS_WORD;
    int64_t size = is_bits ? (count + 7) / 8 : count * (is_index ? 4 : 8), bits = (count + 7) / 8;
    data = PyByteArray_FromStringAndSize(NULL, size);
    validity = PyByteArray_FromStringAndSize(NULL, bits);
    if (data == NULL || validity == NULL)
        goto done;
    uint8_t *into = (uint8_t *)PyByteArray_AS_STRING(data);
    uint8_t *valid = (uint8_t *)PyByteArray_AS_STRING(validity);
    int64_t nulls = 0;
    Py_BEGIN_ALLOW_THREADS
    if (is_bits)
        memset(into, 0, (size_t)size);
    Shown rows = {raw.buf, open.buf, order_of, first, count, into, valid};
    nulls = put_rows(&how, &rows);
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("LOO", (long long)nulls, nulls > 0 ? validity : Py_None, data);
done:
    Py_XDECREF(data);
    Py_XDECREF(validity);
    PyBuffer_Release(&raw);
    PyBuffer_Release(&open);
    PyBuffer_Release(&index);
    return result;
}

/* lost(numbers, first, count, places or None, flags): how many of these 32-bit numbers are not 0 and
 * have no flag. */
static PyObject *lost(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer raw, flags, index = {0};
    long long first, count;
    PyObject *places;
    if (!PyArg_ParseTuple(arguments, "y*LLOy*", &raw, &first, &count, &places, &flags))
        return NULL;
    int64_t found = 0, there = raw.len / 4;
    if (places == Py_None || PyObject_GetBuffer(places, &index, PyBUF_SIMPLE) == 0) {
        const int64_t *order_of = index.buf;
        const uint8_t *has_name = flags.buf;
        for (int64_t i = 0; i < count; i++) {
            int64_t place = order_of == NULL ? first + i : order_of[i];
            int64_t number = place >= 0 && place < there ? value_at(raw.buf, 4, place) : 0;
            found += number > 0 && (number >= flags.len || !has_name[number]);
        }
    }
    PyBuffer_Release(&raw);
    PyBuffer_Release(&flags);
    PyBuffer_Release(&index);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(found);
}

PyMethodDef reading_functions[] = {
    {"read_slots", read_slots, METH_VARARGS, "Read slots of a ring twice and take over their rows."},
    {"most", most, METH_O, "The greatest number."},
    {"forget", forget, METH_VARARGS, "Let no place hold a number."},
    {"missing", missing, METH_VARARGS, "Where rows should be that were not found."},
    {"order", order, METH_VARARGS, "The places of the rows in the order of their numbers."},
    {"lost", lost, METH_VARARGS, "How many numbers of names have none."},
    {"decode", decode, METH_VARARGS, "A column as Arrow holds it."},
    {NULL, NULL, 0, NULL},
};
