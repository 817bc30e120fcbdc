/*
 * A library that checks on every call that it is used by its rule, as those that lie behind engines
 * do not: they crash, or quietly compute nonsense. Calls are counted without any atomicity where
 * the rule forbids two at once, so that two that meet are one too few.
 */
#include <stdatomic.h>
#include <stdlib.h>

enum { OWNER_ONLY = 0, ONE_AT_A_TIME = 1, CONTEXT_CURRENT = 2 };

/* What can be wrong with a call: the bits of its answer, and the places in `wrongs`. */
enum { OTHER_THREAD = 0, TWO_AT_ONCE = 1, NOT_CURRENT = 2, LEFT_CURRENT = 3, OTHER_CALL = 4, KINDS = 5 };

struct engine {
  int rule;
  int alone;           /* whether two calls at once are wrong */
  const void *thread;  /* of its owner: the address of a variable of that thread */
  atomic_int inside;
  long call;           /* the one that is inside */
  long calls;          /* plain: see above */
  atomic_long together; /* the same where calls may meet */
};

static _Thread_local char here;
static _Thread_local struct engine *current;
static _Thread_local int era_of_current;
static atomic_int era; /* what an earlier run has left current counts no more */
static atomic_long wrongs[KINDS];

void strict_begin(void) { atomic_fetch_add(&era, 1); }

static struct engine *what_is_current(void) {
  return era_of_current == atomic_load(&era) ? current : 0;
}

static void make_current(struct engine *e) {
  current = e;
  era_of_current = atomic_load(&era);
}

static int wrong(int kind) {
  atomic_fetch_add(&wrongs[kind], 1);
  return 1 << kind;
}

/* Which OS thread this is, as long as it lives. */
const void *strict_here(void) { return &here; }

/* On the thread that is its owner's, if it has one. */
struct engine *strict_make(int rule, int alone) {
  struct engine *made = calloc(1, sizeof *made);
  made->rule = rule;
  made->alone = alone;
  made->thread = &here;
  return made;
}

static int look(struct engine *e) {
  switch (e->rule) {
    case OWNER_ONLY: return e->thread == &here ? 0 : wrong(OTHER_THREAD);
    case CONTEXT_CURRENT: return what_is_current() == e ? 0 : wrong(NOT_CURRENT);
    default: return 0;
  }
}

/* A call goes in, and is there until strict_leave. Answers what is wrong, or 0. */
int strict_enter(struct engine *e, long call) {
  int found = look(e);
  if (!e->alone) {
    return found;
  }
  if (atomic_exchange(&e->inside, 1)) {
    found |= wrong(TWO_AT_ONCE);
  }
  e->call = call;
  return found;
}

int strict_leave(struct engine *e, long call) {
  int found = look(e);
  if (!e->alone) {
    atomic_fetch_add(&e->together, 1);
    return found;
  }
  if (e->call != call) {
    found |= wrong(OTHER_CALL);
  }
  e->calls++;
  if (!atomic_exchange(&e->inside, 0)) {
    found |= wrong(TWO_AT_ONCE);
  }
  return found;
}

/* Makes it current on the calling thread; answers what was. Between two calls nothing is. */
struct engine *strict_bind(struct engine *e) {
  struct engine *before = what_is_current();
  if (before) {
    wrong(LEFT_CURRENT);
  }
  make_current(e);
  return before;
}

void strict_restore(struct engine *before) { make_current(before); }

/* Frees it; answers how many calls it had. Its rule holds for its end too. */
long strict_end(struct engine *e) {
  if (e->rule == OWNER_ONLY) {
    look(e);
  }
  if (atomic_load(&e->inside)) {
    wrong(TWO_AT_ONCE);
  }
  long calls = e->calls + atomic_load(&e->together);
  free(e);
  return calls;
}

/* How often so far, in the process. */
long strict_wrongs(int kind) { return atomic_load(&wrongs[kind]); }
