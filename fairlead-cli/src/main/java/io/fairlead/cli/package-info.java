/**
 * The {@code fairlead} command: its workloads and reports.
 *
 * <p>Receives arguments and files. Hands results on standard output, progress on standard error,
 * and an exit code.
 */
@NullMarked
package io.fairlead.cli;

import org.jspecify.annotations.NullMarked;
