package io.fairlead.fault;

/** What is lost when an error is thrown, from least to most. */
public enum Severity {
  /** Only the operation that failed; the caller may try again or do something else. */
  OPERATION,
  /** The task that ran it, and with it what its scope's policy says. */
  TASK,
  /** The device context or communicator; every later use of it fails with the same cause. */
  CONTEXT,
  /** The process: nothing of Fairlead can be relied on any more. */
  PROCESS
}
