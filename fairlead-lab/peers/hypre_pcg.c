/*
 * The peer of `fairlead solve`: hypre's conjugate gradients with BoomerAMG, on the same files.
 *
 *   mpirun -n RANKS hypre_pcg MATRIX.mtx[.gz] [RHS.mtx[.gz]] [name=value ...]
 *
 * Every rank reads the whole file and keeps its block of rows; only setup and solve are timed, from
 * a barrier, and the slowest rank counts. Prints one line of JSON. Without a right-hand side, b = A·1.
 *
 *   coarsen=10   8 PMIS, 10 HMIS
 *   interp=6     6 extended+i, 17 matrix-matrix extended+i
 *   pmax=4       entries kept in a row of the interpolation
 *   strong=0.25  strength threshold
 *   relax=6      6 symmetric Gauss-Seidel, 8 l1 symmetric Gauss-Seidel, 16 Chebyshev, 18 l1 Jacobi
 *   sweeps=1     smoothing sweeps before and after
 *   agg=0        levels coarsened aggressively
 *   tol=1e-8     on ||b - A x|| / ||b||
 *   repeat=1     how often to set up and solve, for medians; all are printed
 */
#include <HYPRE.h>
#include <HYPRE_IJ_mv.h>
#include <HYPRE_krylov.h>
#include <HYPRE_parcsr_ls.h>
#include <ctype.h>
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

typedef struct {
  int rows, cols, symmetric, coordinate;
  long entries; /* as stored */
  int *row, *col;
  double *value;
} Matrix;

static struct {
  int coarsen, interp, pmax, relax, sweeps, agg, repeat, most;
  double strong, tol;
} options = {10, 6, 4, 6, 1, 0, 1, 1000, 0.25, 1e-8};

static int rank, ranks;

static void fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  if (rank == 0) {
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
  }
  va_end(list);
  MPI_Abort(MPI_COMM_WORLD, 3);
  exit(3);
}

static char *content_line(gzFile in, char *line, int size) {
  while (gzgets(in, line, size)) {
    char *at = line;
    while (isspace((unsigned char)*at)) at++;
    if (*at && *at != '%') return line;
  }
  return NULL;
}

static Matrix read_matrix(const char *file) {
  Matrix m = {0};
  char line[1024], format[64], field[64], symmetry[64];
  gzFile in = gzopen(file, "rb");
  if (!in) fail("%s: cannot be read", file);
  gzbuffer(in, 1 << 17);
  if (!gzgets(in, line, sizeof line) ||
      sscanf(line, "%%%%MatrixMarket matrix %63s %63s %63s", format, field, symmetry) != 3)
    fail("%s: not a Matrix Market file", file);
  m.coordinate = !strcasecmp(format, "coordinate");
  m.symmetric = !strcasecmp(symmetry, "symmetric");
  if (!m.symmetric && strcasecmp(symmetry, "general")) fail("%s: %s not supported", file, symmetry);
  if (strcasecmp(field, "real") && strcasecmp(field, "integer"))
    fail("%s: %s not supported", file, field);
  if (!content_line(in, line, sizeof line)) fail("%s: no size line", file);
  if (m.coordinate) {
    if (sscanf(line, "%d %d %ld", &m.rows, &m.cols, &m.entries) != 3) fail("%s: size line", file);
  } else {
    if (sscanf(line, "%d %d", &m.rows, &m.cols) != 2) fail("%s: size line", file);
    m.entries = (long)m.rows * m.cols;
  }
  m.row = malloc(sizeof(int) * m.entries);
  m.col = malloc(sizeof(int) * m.entries);
  m.value = malloc(sizeof(double) * m.entries);
  for (long k = 0; k < m.entries; k++) {
    char *at = content_line(in, line, sizeof line);
    if (!at) fail("%s: %ld entries, %ld promised", file, k, m.entries);
    m.row[k] = m.coordinate ? (int)strtol(at, &at, 10) - 1 : (int)(k % m.rows);
    m.col[k] = m.coordinate ? (int)strtol(at, &at, 10) - 1 : (int)(k / m.rows);
    m.value[k] = strtod(at, NULL);
  }
  gzclose(in);
  return m;
}

static int first_row(int rows, int r) { return (int)((long)rows * r / ranks); }

static HYPRE_IJMatrix local_rows(const Matrix *m, int first, int end) {
  HYPRE_IJMatrix a;
  int local = end - first;
  HYPRE_Int *counts = calloc(local ? local : 1, sizeof *counts);
  for (long k = 0; k < m->entries; k++) {
    int i = m->row[k], j = m->col[k];
    if (i >= first && i < end) counts[i - first]++;
    if (m->symmetric && i != j && j >= first && j < end) counts[j - first]++;
  }
  long *start = malloc(sizeof(long) * (local + 1));
  start[0] = 0;
  for (int i = 0; i < local; i++) start[i + 1] = start[i] + counts[i];
  HYPRE_BigInt *cols = malloc(sizeof *cols * (start[local] + 1));
  double *values = malloc(sizeof(double) * (start[local] + 1));
  long *next = malloc(sizeof(long) * (local + 1));
  memcpy(next, start, sizeof(long) * (local + 1));
  for (long k = 0; k < m->entries; k++) {
    int i = m->row[k], j = m->col[k];
    if (i >= first && i < end) {
      cols[next[i - first]] = j;
      values[next[i - first]++] = m->value[k];
    }
    if (m->symmetric && i != j && j >= first && j < end) {
      cols[next[j - first]] = i;
      values[next[j - first]++] = m->value[k];
    }
  }
  HYPRE_BigInt *rows = malloc(sizeof *rows * (local + 1));
  for (int i = 0; i < local; i++) rows[i] = first + i;
  HYPRE_IJMatrixCreate(MPI_COMM_WORLD, first, end - 1, first, end - 1, &a);
  HYPRE_IJMatrixSetObjectType(a, HYPRE_PARCSR);
  HYPRE_IJMatrixSetRowSizes(a, counts);
  HYPRE_IJMatrixInitialize(a);
  HYPRE_IJMatrixSetValues(a, local, counts, rows, cols, values);
  HYPRE_IJMatrixAssemble(a);
  free(counts), free(start), free(next), free(cols), free(values), free(rows);
  return a;
}

static HYPRE_IJVector vector(int first, int end, const double *values) {
  HYPRE_IJVector v;
  int local = end - first;
  HYPRE_BigInt *rows = malloc(sizeof *rows * (local + 1));
  for (int i = 0; i < local; i++) rows[i] = first + i;
  HYPRE_IJVectorCreate(MPI_COMM_WORLD, first, end - 1, &v);
  HYPRE_IJVectorSetObjectType(v, HYPRE_PARCSR);
  HYPRE_IJVectorInitialize(v);
  HYPRE_IJVectorSetValues(v, local, rows, values);
  HYPRE_IJVectorAssemble(v);
  free(rows);
  return v;
}

static double since(double start) {
  double mine = MPI_Wtime() - start, slowest;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static HYPRE_Solver amg(void) {
  HYPRE_Solver s;
  HYPRE_BoomerAMGCreate(&s);
  HYPRE_BoomerAMGSetCoarsenType(s, options.coarsen);
  HYPRE_BoomerAMGSetInterpType(s, options.interp);
  HYPRE_BoomerAMGSetPMaxElmts(s, options.pmax);
  HYPRE_BoomerAMGSetStrongThreshold(s, options.strong);
  HYPRE_BoomerAMGSetAggNumLevels(s, options.agg);
  HYPRE_BoomerAMGSetRelaxType(s, options.relax);
  HYPRE_BoomerAMGSetCycleRelaxType(s, 9, 3);
  HYPRE_BoomerAMGSetNumSweeps(s, options.sweeps);
  HYPRE_BoomerAMGSetCycleNumSweeps(s, 1, 3);
  HYPRE_BoomerAMGSetRelaxOrder(s, 0);
  HYPRE_BoomerAMGSetTol(s, 0.0);
  HYPRE_BoomerAMGSetMaxIter(s, 1);
  HYPRE_BoomerAMGSetPrintLevel(s, 0);
  return s;
}

/* Sets up and solves once, from x = 0, and prints its line. */
static void run(const char *file, const Matrix *m, int first, int end, const double *b) {
  HYPRE_IJMatrix ija = local_rows(m, first, end);
  double *zero = calloc(end - first + 1, sizeof(double));
  HYPRE_IJVector ijb = vector(first, end, b), ijx = vector(first, end, zero);
  HYPRE_IJVector ijr = vector(first, end, b);
  HYPRE_ParCSRMatrix a;
  HYPRE_ParVector pb, px, pr;
  HYPRE_IJMatrixGetObject(ija, (void **)&a);
  HYPRE_IJVectorGetObject(ijb, (void **)&pb);
  HYPRE_IJVectorGetObject(ijx, (void **)&px);
  HYPRE_IJVectorGetObject(ijr, (void **)&pr);

  HYPRE_Solver pcg, precond = amg();
  HYPRE_ParCSRPCGCreate(MPI_COMM_WORLD, &pcg);
  HYPRE_PCGSetMaxIter(pcg, options.most);
  HYPRE_PCGSetTol(pcg, options.tol);
  HYPRE_PCGSetTwoNorm(pcg, 1);
  HYPRE_PCGSetRecomputeResidual(pcg, 0);
  HYPRE_PCGSetPrecond(pcg, (HYPRE_PtrToSolverFcn)HYPRE_BoomerAMGSolve,
                      (HYPRE_PtrToSolverFcn)HYPRE_BoomerAMGSetup, precond);

  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  HYPRE_ParCSRPCGSetup(pcg, a, pb, px);
  double setup = since(start);
  MPI_Barrier(MPI_COMM_WORLD);
  start = MPI_Wtime();
  HYPRE_ParCSRPCGSolve(pcg, a, pb, px);
  double solve = since(start);

  HYPRE_Int iterations;
  HYPRE_PCGGetNumIterations(pcg, &iterations);
  double rr, bb, xx;
  HYPRE_ParCSRMatrixMatvec(-1.0, a, px, 1.0, pr);
  HYPRE_ParVectorInnerProd(pr, pr, &rr);
  HYPRE_ParVectorInnerProd(pb, pb, &bb);
  HYPRE_ParVectorInnerProd(px, px, &xx);
  if (rank == 0) {
    printf("{\"peer\": \"hypre-pcg-boomeramg\", \"file\": \"%s\", \"rows\": %d, \"ranks\": %d, "
           "\"setup\": %.6f, \"solve\": %.6f, \"total\": %.6f, \"iterations\": %d, "
           "\"relativeResidual\": %.3e, \"xNorm2\": %.12e, \"coarsen\": %d, \"interp\": %d, "
           "\"pmax\": %d, \"relax\": %d, \"sweeps\": %d, \"agg\": %d, \"strong\": %g}\n",
           file, m->rows, ranks, setup, solve, setup + solve, (int)iterations, sqrt(rr / bb),
           sqrt(xx), options.coarsen, options.interp, options.pmax, options.relax, options.sweeps,
           options.agg, options.strong);
    fflush(stdout);
  }
  HYPRE_ParCSRPCGDestroy(pcg);
  HYPRE_BoomerAMGDestroy(precond);
  HYPRE_IJMatrixDestroy(ija);
  HYPRE_IJVectorDestroy(ijb), HYPRE_IJVectorDestroy(ijx), HYPRE_IJVectorDestroy(ijr);
  free(zero);
}

static void option(const char *text) {
  const char *value = strchr(text, '=');
  size_t n = (size_t)(value++ - text);
#define IS(name) (n == strlen(name) && !strncmp(text, name, n))
  if (IS("coarsen")) options.coarsen = atoi(value);
  else if (IS("interp")) options.interp = atoi(value);
  else if (IS("pmax")) options.pmax = atoi(value);
  else if (IS("relax")) options.relax = atoi(value);
  else if (IS("sweeps")) options.sweeps = atoi(value);
  else if (IS("agg")) options.agg = atoi(value);
  else if (IS("repeat")) options.repeat = atoi(value);
  else if (IS("strong")) options.strong = atof(value);
  else if (IS("tol")) options.tol = atof(value);
  else fail("%s: no such option", text);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char *files[2] = {NULL, NULL};
  int named = 0;
  for (int k = 1; k < argc; k++) {
    if (strchr(argv[k], '=')) option(argv[k]);
    else if (named < 2) files[named++] = argv[k];
  }
  if (!files[0]) fail("usage: hypre_pcg MATRIX.mtx[.gz] [RHS.mtx[.gz]] [name=value ...]");
  HYPRE_Init();
  Matrix m = read_matrix(files[0]);
  if (m.rows != m.cols || !m.coordinate) fail("%s: expected a square coordinate file", files[0]);
  int first = first_row(m.rows, rank), end = first_row(m.rows, rank + 1);
  double *b = calloc(m.rows + 1, sizeof(double));
  if (files[1]) {
    Matrix rhs = read_matrix(files[1]);
    if (rhs.rows != m.rows) fail("%s: %d rows, expected %d", files[1], rhs.rows, m.rows);
    for (long k = 0; k < rhs.entries; k++)
      if (rhs.col[k] == 0) b[rhs.row[k]] = rhs.value[k];
  } else {
    for (long k = 0; k < m.entries; k++) {
      b[m.row[k]] += m.value[k];
      if (m.symmetric && m.row[k] != m.col[k]) b[m.col[k]] += m.value[k];
    }
  }
  for (int k = 0; k < options.repeat; k++) run(files[0], &m, first, end, b + first);
  HYPRE_Finalize();
  MPI_Finalize();
  return 0;
}
