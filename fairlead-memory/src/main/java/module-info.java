/** Stream-ordered buffers, the ledger, tiers and spilling. */
module io.fairlead.memory {
  requires transitive io.fairlead.device;
  requires static org.jspecify;

  exports io.fairlead.memory;
}
