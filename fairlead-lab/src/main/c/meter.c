/* A library that was built for one thread at a time: what it knows lies in the thread. */
enum { METER_OK = 0, METER_NOT_OPEN = 1, METER_ALREADY_OPEN = 2, METER_EMPTY = 3 };

static _Thread_local struct {
  int open;
  long count;
  double sum;
} meter;

int meter_open(void) {
  if (meter.open) return METER_ALREADY_OPEN;
  meter.open = 1;
  meter.count = 0;
  meter.sum = 0;
  return METER_OK;
}

int meter_add(double value) {
  if (!meter.open) return METER_NOT_OPEN; /* any other thread ends up here */
  meter.count++;
  meter.sum += value;
  return METER_OK;
}

int meter_mean(double *mean) {
  if (!meter.open) return METER_NOT_OPEN;
  if (meter.count == 0) return METER_EMPTY;
  *mean = meter.sum / (double)meter.count;
  return METER_OK;
}

int meter_close(void) {
  if (!meter.open) return METER_NOT_OPEN;
  meter.open = 0;
  return METER_OK;
}
