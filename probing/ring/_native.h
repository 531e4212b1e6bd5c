/* What the files of the C part share: rows, the state of a moment and of a thread, and ways into
 * Python.
 *
 * Rules of this file: nothing in it is seen outside of the C part. All of it is used under the
 * interpreter lock. */

#ifndef PROBING_NATIVE_H
#define PROBING_NATIVE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* RUSAGE_THREAD */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#define HEADER_SIZE 16384
#define MAX_DEPTH 255
#define DONE 1
#define FACTS_SIZE 24 /* the thread's part of a row, down to the columns that close it */
#define IDS_SIZE 12

/* A row of python.torch_trace; `install` compares it with the layout that Python declares. */
typedef struct {
    uint64_t begin;
    int64_t start_ns;
    uint32_t step;
    uint8_t ids[IDS_SIZE];
    uint32_t thread_id;
    uint8_t stage, depth, recomputed, training;
    int64_t duration_ns;
    int64_t allocated_bytes;
    uint64_t end;
} Row;

_Static_assert(sizeof(Row) == 64, "a row has no holes");
_Static_assert(offsetof(Row, end) - offsetof(Row, thread_id) == FACTS_SIZE, "nor have its facts");

/* Gives rows their numbers: "words", each four more than the last. */
typedef struct {
    PyObject_HEAD
    uint64_t next;
} Words;

/* What is the same for all calls of a moment. */
typedef struct {
    PyObject_HEAD
    long long step;
    long long due_ns;
    long long bytes;
    long long passes;
} Moment;

/* A module whose backward pass is under way. */
typedef struct {
    struct Place *place;
    uint64_t word;
    uint64_t installed;
    int64_t start_ns;
} Open;

/* What one thread is in the middle of: the part of it that rows need. */
typedef struct {
    PyObject_HEAD
    Py_ssize_t depth;
    PyObject *facts; /* by depth: FACTS_SIZE bytes each */
    Py_ssize_t passes, floor;
    char recomputing;
    long long seen_passes;        /* as of the moment, when it has looked last */
    unsigned long long first_new; /* its own nodes from this number on were made since */
    PyObject *backward_facts; /* the same, of rows of the backward pass */
    PyObject *carrier;        /* by which hooks are handed to nodes */
    uint64_t *begun;          /* numbers of nodes at which the backward of a module begins */
    Open *open;               /* modules whose backward pass is under way, the outermost first */
    Py_ssize_t count, room;   /* of those */
    Py_ssize_t fresh;         /* how many of them have begun since one ended */
} Thread;

/* What a recording has given to the C part. */
typedef struct {
    PyObject *function;    /* what stands in for Module.__call__ */
    PyObject *original;    /* torch's own; kept, for calls that outlast the recording */
    PyObject *known;       /* dict: id(module) -> bytes */
    PyObject *state_of_thread;
    PyObject *sample, *failed, *fault;
    PyObject *is_programs; /* of an exception: bool; kept as well */
    Words *words;
    Moment *now;
    Py_buffer ring;
    uint64_t slot_mask;    /* of row numbers */
    uint64_t installed;    /* how often; 0: never. Calls under way know theirs */
    int is_installed;
    int is_direct;         /* torch's own is what we can do ourselves */
    vectorcallfunc python; /* the function as it is without us */
} Hot;

extern Hot hot;
extern PyTypeObject *thread_type, *words_type, *phases_type;

static inline int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline Row *row_of(uint64_t word)
{
    return (Row *)((char *)hot.ring.buf + HEADER_SIZE) + ((word >> 2) & hot.slot_mask);
}

static inline uint64_t next_word(void)
{
    uint64_t word = hot.words->next;
    hot.words->next = word + 4;
    return word;
}

/* Writes a row whose end is open. */
static inline void open_row(uint64_t word, int64_t start, const uint8_t *ids, const char *facts)
{
    Row *row = row_of(word);
    __atomic_store_n(&row->begin, word, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    row->start_ns = start;
    row->step = (uint32_t)hot.now->step;
    memcpy(row->ids, ids, sizeof row->ids);
    memcpy(&row->thread_id, facts, FACTS_SIZE);
    __atomic_store_n(&row->end, word, __ATOMIC_RELEASE);
}

/* Completes it, unless another one has come in its place. */
static inline void close_row(uint64_t word, int64_t took)
{
    Row *row = row_of(word);
    if (row->begin != word)
        return;
    row->duration_ns = took;
    row->allocated_bytes = hot.now->bytes;
    __atomic_store_n(&row->end, word + DONE, __ATOMIC_RELEASE);
}

/* Whether the recording in which a call has begun still goes on; else its ring is not mapped. */
static inline int goes_on(uint64_t installed)
{
    return hot.installed == installed && hot.is_installed;
}

/* A thread's facts for calls of a depth; NULL where they are not as they should be. */
static inline const char *facts_at(PyObject *facts, Py_ssize_t depth)
{
    if (facts == NULL || !PyList_CheckExact(facts) || PyList_GET_SIZE(facts) != MAX_DEPTH + 1)
        return NULL;
    PyObject *found = PyList_GET_ITEM(facts, depth < MAX_DEPTH ? depth : MAX_DEPTH);
    if (!PyBytes_CheckExact(found) || PyBytes_GET_SIZE(found) != FACTS_SIZE)
        return NULL;
    return PyBytes_AS_STRING(found);
}

/* What a stored column becomes. */
enum { AS_INT = 'l', AS_FLOAT = 'g', AS_BOOL = 'b', AS_NAME = 'n', AS_WORD = 'e', AS_SCALED = 's',
       AS_FAILED = 'f', AS_PLAIN = 'p' };

/* How a column becomes one of Arrow: its values as they are stored and, where open rows have none,
 * the states of the rows; both of all places that were read. */
typedef struct {
    int kind;
    int64_t width, limit, null_int, add;
    uint64_t null_float;
    double factor;
    const uint8_t *raw, *states;
} How;

/* Rows side by side from the place `first` on, and where their values go: from the number `at` on.
 * Bits are set there, and none is taken away. */
typedef struct {
    int64_t first, count, at;
    uint8_t *data, *valid;
} Shown;

/* What _native.c offers. */
int handle(PyObject *callable, PyObject *const *args, size_t count, int again);
int is_interrupt(void);
int note_fault_by(PyObject *fault);
int take_sample(void);
int pack_arguments(
    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject **rest, PyObject **named);
Thread *find_thread(PyThreadState *state);

/* What _backward.c offers. */
extern PyMethodDef arrow_functions[];
extern PyMethodDef backward_functions[];
extern PyMethodDef reading_functions[];
int64_t decode_rows(const How *how, const Shown *rows); /* how many are NULL; needs no lock */
int add_backward_types(PyObject *module);
void leave_backward(void);
int is_hooking(void);
int is_attaching(void);
int attach_call(
    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject *result, Py_ssize_t depth,
    int64_t now);
void free_open(Thread *thread);

/* What _rows.c, _steps.c, _batches.c and _optimizer_rows.c offer. */
#define PHASE_COUNT 9
extern PyType_Spec rows_spec, phases_spec, batches_spec, optimizer_rows_spec;
/* Of a clock of phases: what has been spent on each; NULL, and an exception, where it is none. */
const int64_t *spent_in(PyObject *phases);
/* The micro-batch in progress, if any, has ended; one is in progress now; -1: Python raised. */
int finish_batch_of(PyObject *phases);
int ensure_batch_of(PyObject *phases, int64_t now);
extern const char used_doc[], fill_used_doc[];
PyObject *used(PyObject *module, PyObject *ignored);
PyObject *fill_used(PyObject *module, PyObject *args);

/* What _cut_files.c offers. */
extern const char protect_doc[], unprotect_doc[], cuts_doc[], stand_aside_doc[], stand_before_doc[];
PyObject *protect(PyObject *module, PyObject *args);
PyObject *unprotect(PyObject *module, PyObject *address);
PyObject *cuts(PyObject *module, PyObject *address);
PyObject *stand_aside(PyObject *module, PyObject *ignored);
PyObject *stand_before(PyObject *module, PyObject *ignored);

/* What _ends.c offers. */
extern const char ends_of_doc[], note_ends_doc[];
PyObject *ends_of(PyObject *module, PyObject *optimizer);
PyObject *note_ends(PyObject *module, PyObject *const *args, Py_ssize_t given);

/* What _inputs.c offers. */
extern const char size_of_doc[], references_doc[];
PyObject *size_of(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *references(PyObject *module, PyObject *const *args, Py_ssize_t given);

/* A loss, as the named tuple of Python has it. */
enum { LOSS_NUMBER, LOSS_SHARE, LOSS_REACHED, LOSS_TRAINS, LOSS_PARTS, LOSS_FIELDS };

/* Whether an object is a plain number that is here, which is a new reference then: 0 where not, or
 * not yet; -1: Python raised. */
static inline int here_of(PyObject *number, PyObject *type, PyObject **here)
{
    *here = NULL;
    if ((PyObject *)Py_TYPE(number) != type)
        return 0;
    Py_INCREF(number);
    *here = PyObject_GetAttrString(number, "here");
    Py_DECREF(number);
    if (*here == NULL)
        return -1;
    if (!Py_IsNone(*here))
        return 1;
    Py_CLEAR(*here);
    return 0;
}

/* Whether an object is a loss, of that type. */
static inline int is_loss_of(PyTypeObject *type, PyObject *object)
{
    return Py_TYPE(object) == type && PyTuple_GET_SIZE(object) == LOSS_FIELDS;
}

/* What _closing.c offers: a row is completed; -1: Python raised. `late` does that in Python, when
 * the numbers have come that a list has with the places of their columns. */
int close_at_once(PyObject *close_row, PyObject *const *row, Py_ssize_t columns);
int close_later(
    PyObject *late, PyObject *ring, PyObject *const *row, Py_ssize_t columns, PyObject *later);

/* What _exits.c offers. */
extern const char tell_exit_code_doc[], told_exit_doc[], forget_exit_doc[];
PyObject *tell_exit_code(PyObject *module, PyObject *path);
PyObject *told_exit(PyObject *module, PyObject *args);
PyObject *forget_exit(PyObject *module, PyObject *ignored);
/* A copy of a path that no object owns; NULL where Python raised. */
char *copy_of_path(PyObject *path);
/* Writes a few bytes to a file, all or none, by calls of the kernel alone; `how` is O_EXCL or
 * O_TRUNC. */
void leave_word(const char *path, int how, const char *text, size_t length);

/* What _terminations.c offers. */
extern const char note_sigterm_doc[], forget_sigterm_doc[];
PyObject *note_sigterm(PyObject *module, PyObject *args);
PyObject *forget_sigterm(PyObject *module, PyObject *ignored);

#endif
