/**
 * The benchmarks. Each suite compares Fairlead with an honest alternative in one run and reports
 * rows of one format. Receives the runtime and the solver through their public interfaces; hands
 * figures to a person (a table) and to programs (JSON).
 */
@NullMarked
package io.fairlead.cli.bench;

import org.jspecify.annotations.NullMarked;
