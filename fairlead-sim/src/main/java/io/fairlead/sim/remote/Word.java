package io.fairlead.sim.remote;

/** What the two sides say to each other. */
enum Word {
  // --- calls, from the suite ---
  OPEN,
  OPEN_CHANNEL,
  SEND,
  RECEIVE,
  MESSAGE,
  LISTEN,
  READ_HEADER,
  ACCEPT,
  REFUSE,
  EXPOSE,
  CONCEAL,
  PUT,
  GET,
  CANCEL,
  POLL,
  ABORT,
  CLOSE_CHANNEL,
  CLOSE,
  EXIT,

  // --- what became of them, from the rank ---
  SENT,
  RECEIVED,
  COPIED,
  FAILED,
  ARRIVED,
  LANDED,
  LANDING_FAILED,
  WINDOW,
  ANSWER,
  THROWN
}
