/* The task benchmarks of "fairlead bench tasks" with OpenMP tasks (libgomp): one task for each fork.
 *
 *   tasks_omp THREADS
 *
 * Prints a line of JSON for each row: the median of RUNS runs after a warm-up. OpenMP tasks cannot
 * suspend in the middle, so there is no row for tasks that wait, and none for ping-pong.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 7, SPAWNS = 200000 };

static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static int pfib(int n) {
  if (n < 2) return n;
  int x, y;
#pragma omp task shared(y) firstprivate(n)
  y = pfib(n - 2);
  x = pfib(n - 1);
#pragma omp taskwait
  return x + y;
}

static volatile int sink;

static void run_fib(void) { sink = fib(31); }

static void run_pfib(void) {
#pragma omp parallel
#pragma omp single
  sink = pfib(31);
}

static void run_spawn(void) {
#pragma omp parallel
#pragma omp single
  for (int i = 0; i < SPAWNS; i++) {
#pragma omp task
    sink = i;
#pragma omp taskwait
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(void (*body)(void)) {
  double seconds[RUNS];
  body();
  for (int i = 0; i < RUNS; i++) {
    double start = omp_get_wtime();
    body();
    seconds[i] = omp_get_wtime() - start;
  }
  qsort(seconds, RUNS, sizeof seconds[0], ascending);
  return seconds[RUNS / 2];
}

static void row(const char *id, int threads, double value, const char *unit) {
  printf("{\"peer\": \"libgomp\", \"version\": \"gcc %s\", \"id\": \"%s\", \"threads\": %d, "
         "\"value\": %.6g, \"unit\": \"%s\"}\n",
         __VERSION__, id, threads, value, unit);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: tasks_omp THREADS\n");
    return 2;
  }
  int threads = atoi(argv[1]);
  omp_set_num_threads(threads);
  run_pfib();
  if (sink != fib(31)) {
    fprintf(stderr, "pfib(31) is wrong\n");
    return 1;
  }
  row("fib31", threads, median(run_fib), "s");
  row("pfib31", threads, median(run_pfib), "s");
  row("spawn", threads, median(run_spawn) / SPAWNS * 1e9, "ns");
  return 0;
}
