/*
 * What messages cost in C, by MPI alone: the baseline of "fairlead bench comm". Two ranks of one machine, one thread
 * each, nonblocking calls and MPI_Testsome only, which is what a program that does other things meanwhile would call.
 *
 *   twin SCALE PART...    SCALE divides the numbers of rounds, each PART is one of those below
 *
 * Rank 0 prints a line "samples NAME VALUE..." for each figure:
 *
 *   pingpong   half a round trip of 8 bytes and of 1 MiB, nanoseconds (half.8, half.1m)
 *   rate       messages of 8 bytes a second, both directions together, 64 in flight each way (rate)
 *   blobs      half a round trip of a header and four blobs of 64 KiB, five messages, nanoseconds (blobs)
 *   flood      by how many bytes 200,000 messages of 4,000 bytes that nobody receives yet let the receiver's and the
 *              sender's resident memory grow, and how many came with wrong content (flood.receiver, .sender, .wrong)
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SMALL = 8, LARGE = 1 << 20, SMALL_BATCH = 100, SMALL_SAMPLES = 400, LARGE_BATCH = 4, LARGE_SAMPLES = 150 };
enum { WINDOW = 64, RATE_EACH = 400, RATE_SAMPLES = 40 };
enum { HEADER = 64, BLOBS = 4, BLOB = 64 << 10, BLOBS_BATCH = 10, BLOBS_SAMPLES = 200 };
enum { FLOOD = 200000, FLOOD_BYTES = 4000, FLOOD_TAG = 1 };

static int rank, peer;

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void check(int status, const char *what) {
  if (status == MPI_SUCCESS) return;
  fprintf(stderr, "twin: %s failed with status %d\n", what, status);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *memory(size_t bytes) {
  void *block = malloc(bytes);
  check(block == NULL, "malloc");
  memset(block, rank + 1, bytes); /* touched: no first access is timed */
  return block;
}

static int rounds(int full, int scale) { return full / scale < 5 ? 5 : full / scale; }

static void receive(void *into, int bytes, int tag, MPI_Request *request) {
  check(MPI_Irecv(into, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, request), "MPI_Irecv");
}

static void begin_send(const void *from, int bytes, int tag, MPI_Request *request) {
  check(MPI_Isend(from, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, request), "MPI_Isend");
}

/* Until all requests have ended. */
static void finish(int count, MPI_Request *requests) {
  int ended[2 * WINDOW], some, left = count;
  while (left > 0) {
    check(MPI_Testsome(count, requests, &some, ended, MPI_STATUSES_IGNORE), "MPI_Testsome");
    if (some != MPI_UNDEFINED) left -= some;
  }
}

/* Sends and awaits the answer, or the other way round on the other rank; blobs[0] to blobs[count - 1] each way. */
static void round_trip(int count, char **out, char **in, const int *bytes) {
  MPI_Request requests[2 * (BLOBS + 1)];
  if (rank == 0) {
    for (int i = 0; i < count; i++) receive(in[i], bytes[i], i, &requests[i]);
    for (int i = 0; i < count; i++) begin_send(out[i], bytes[i], i, &requests[count + i]);
    finish(2 * count, requests);
  } else {
    for (int i = 0; i < count; i++) receive(in[i], bytes[i], i, &requests[i]);
    finish(count, requests);
    for (int i = 0; i < count; i++) begin_send(out[i], bytes[i], i, &requests[i]);
    finish(count, requests);
  }
}

static void half_round_trips(const char *name, int count, const int *bytes, int batch, int samples) {
  char *out[BLOBS + 1], *in[BLOBS + 1];
  for (int i = 0; i < count; i++) {
    out[i] = memory(bytes[i]);
    in[i] = memory(bytes[i]);
  }
  check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
  if (rank == 0) printf("samples %s", name);
  for (int i = -samples / 4 - 1; i < samples; i++) {
    long start = now();
    for (int j = 0; j < batch; j++) round_trip(count, out, in, bytes);
    if (rank == 0 && i >= 0) printf(" %.1f", (double)(now() - start) / batch / 2);
  }
  if (rank == 0) printf("\n");
  for (int i = 0; i < count; i++) {
    free(out[i]);
    free(in[i]);
  }
}

static void ping_pong(int scale) {
  int small[] = {SMALL}, large[] = {LARGE};
  half_round_trips("half.8", 1, small, SMALL_BATCH, rounds(SMALL_SAMPLES, scale));
  half_round_trips("half.1m", 1, large, LARGE_BATCH, rounds(LARGE_SAMPLES, scale));
}

static void blobs(int scale) {
  int bytes[BLOBS + 1] = {HEADER, BLOB, BLOB, BLOB, BLOB};
  half_round_trips("blobs", BLOBS + 1, bytes, BLOBS_BATCH, rounds(BLOBS_SAMPLES, scale));
}

/* One request for each place of the window and each direction, begun again as soon as it has ended. */
static void exchange(int each, char *in, char *out) {
  MPI_Request requests[2 * WINDOW];
  int left[2 * WINDOW], ended[2 * WINDOW], some, all = 2 * WINDOW * each;
  for (int i = 0; i < WINDOW; i++) {
    left[i] = left[WINDOW + i] = each;
    receive(in + i * SMALL, SMALL, i, &requests[i]);
  }
  for (int i = 0; i < WINDOW; i++) begin_send(out + i * SMALL, SMALL, i, &requests[WINDOW + i]);
  while (all > 0) {
    check(MPI_Testsome(2 * WINDOW, requests, &some, ended, MPI_STATUSES_IGNORE), "MPI_Testsome");
    for (int k = 0; k < some; k++) { /* MPI_UNDEFINED is negative */
      int i = ended[k];
      all--;
      if (--left[i] == 0) continue;
      if (i < WINDOW) {
        receive(in + i * SMALL, SMALL, i, &requests[i]);
      } else {
        begin_send(out + (i - WINDOW) * SMALL, SMALL, i - WINDOW, &requests[i]);
      }
    }
  }
}

static void rate(int scale) {
  char *in = memory(WINDOW * SMALL), *out = memory(WINDOW * SMALL);
  int samples = rounds(RATE_SAMPLES, scale);
  if (rank == 0) printf("samples rate");
  for (int i = -samples / 4 - 1; i < samples; i++) {
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    long start = now();
    exchange(RATE_EACH, in, out);
    if (rank == 0 && i >= 0) printf(" %.6g", 2.0 * WINDOW * RATE_EACH * 1e9 / (now() - start));
  }
  if (rank == 0) printf("\n");
  free(in);
  free(out);
}

/* Such as VmRSS and VmHWM, in bytes. */
static long of_process(const char *key) {
  char line[256];
  long kib = -1;
  FILE *status = fopen("/proc/self/status", "r");
  check(status == NULL, "/proc/self/status");
  while (fgets(line, sizeof line, status) != NULL) {
    if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key) + 1, "%ld", &kib);
  }
  fclose(status);
  return kib * 1024;
}

/* The receiver looks for another message only, which makes progress; then it takes all and checks them. */
static double receive_flood(int count) {
  int posted = 0, wrong = 0;
  int *message = memory(FLOOD_BYTES);
  MPI_Request request;
  check(MPI_Irecv(&posted, 1, MPI_INT, peer, FLOOD_TAG + 1, MPI_COMM_WORLD, &request), "MPI_Irecv");
  finish(1, &request);
  for (int i = 0; i < count; i++) {
    receive(message, FLOOD_BYTES, FLOOD_TAG, &request);
    finish(1, &request);
    wrong += message[0] != i;
  }
  free(message);
  return wrong;
}

static void send_flood(int count) {
  /* Each has its own number in front, so each needs its own memory until it is sent: that is not growth of MPI's. */
  char *messages = memory((size_t)count * FLOOD_BYTES);
  MPI_Request *requests = memory(count * sizeof *requests);
  int posted = 1;
  MPI_Request last;
  for (int i = 0; i < count; i++) {
    memcpy(messages + (size_t)i * FLOOD_BYTES, &i, sizeof i);
  }
  check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
  long before = of_process("VmRSS:");
  for (int i = 0; i < count; i++) {
    begin_send(messages + (size_t)i * FLOOD_BYTES, FLOOD_BYTES, FLOOD_TAG, &requests[i]);
  }
  begin_send(&posted, sizeof posted, FLOOD_TAG + 1, &last);
  finish(1, &last);
  check(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
  printf("samples flood.sender %ld\n", of_process("VmHWM:") - before);
  free(requests);
  free(messages);
}

static void flood(int scale) {
  int count = rounds(FLOOD, scale);
  double said[2];
  if (rank == 0) {
    send_flood(count);
    check(MPI_Recv(said, 2, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
    printf("samples flood.receiver %.0f\nsamples flood.wrong %.0f\n", said[0], said[1]);
  } else {
    check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    long before = of_process("VmRSS:");
    said[1] = receive_flood(count);
    said[0] = (double)(of_process("VmHWM:") - before);
    check(MPI_Send(said, 2, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD), "MPI_Send");
  }
}

static int run(const char *part, int scale) {
  if (strcmp(part, "pingpong") == 0) ping_pong(scale);
  else if (strcmp(part, "rate") == 0) rate(scale);
  else if (strcmp(part, "blobs") == 0) blobs(scale);
  else if (strcmp(part, "flood") == 0) flood(scale);
  else return 0;
  return 1;
}

int main(int count, char **words) {
  int ranks, level;
  check(MPI_Init_thread(&count, &words, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  peer = 1 - rank;
  int scale = count > 2 ? atoi(words[1]) : 0, understood = ranks == 2 && scale > 0;
  for (int i = 2; i < count && understood; i++) understood = run(words[i], scale);
  if (!understood) {
    if (rank == 0) fprintf(stderr, "usage: mpirun -n 2 twin SCALE pingpong|rate|blobs|flood...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  check(MPI_Finalize(), "MPI_Finalize");
  return 0;
}
