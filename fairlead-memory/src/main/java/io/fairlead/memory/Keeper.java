package io.fairlead.memory;

import org.jspecify.annotations.Nullable;

/**
 * Who has to act before memory can leave the device: who took the lease, the hold or the
 * reservation, whose operation needs it, who captured the graph, or else who allocated it. One
 * object for each keep, so that who looks twice knows whether it is still the same.
 *
 * <pre>
 * field    | writer          | reader            | mode
 * handedOn | who has it, once | who looks for deadlocks | volatile: later looks must see it
 * leaving  | who closes the graph, once | same    | volatile: same
 * </pre>
 */
final class Keeper {
  private final Account account;
  private final @Nullable Try attempt;

  /** Of which graph it is; null if of none. */
  final @Nullable Object graph;

  /** Whether somebody else may be the one who ends it. */
  private volatile boolean handedOn;

  /** Whether it ends by itself. */
  private volatile boolean leaving;

  private Keeper(Account account, @Nullable Try attempt, @Nullable Object graph) {
    this.account = account;
    this.attempt = attempt;
    this.graph = graph;
    this.handedOn = graph != null; // whoever has the graph may close it
  }

  /** Whoever has this account. */
  static Keeper of(Account account) {
    return of(account, account.attempt);
  }

  /**
   * The same in a try.
   *
   * @param attempt what it was done in, whose end by a rollback ends the keep, too
   */
  static Keeper of(Account account, @Nullable Try attempt) {
    return new Keeper(account, attempt, null);
  }

  /** As {@link #of}, of something that {@link #end ends}. */
  static Keeper begin(Account account) {
    account.keeps.incrementAndGet();
    return of(account);
  }

  /** The same, of a graph that the account's task captures or builds. */
  static Keeper begin(Account account, Object graph) {
    account.keeps.incrementAndGet();
    return new Keeper(account, account.attempt, graph);
  }

  /** Once. */
  void end() {
    account.keeps.decrementAndGet();
  }

  Account account() {
    return account;
  }

  @Nullable Try attempt() {
    return attempt;
  }

  /** From now on somebody else may end it. */
  void handOn() {
    handedOn = true;
  }

  /** From now on it ends by itself. */
  void leaves() {
    leaving = true;
  }

  boolean isLeaving() {
    return leaving;
  }

  boolean isHandedOn() {
    return handedOn;
  }
}
