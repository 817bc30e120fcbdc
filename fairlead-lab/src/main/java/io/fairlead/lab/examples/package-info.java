/**
 * Examples that the guides in {@code docs/guide} show; tests run them and compare the pages.
 *
 * <p>Receives the public API, as a user would. Hands nothing to anybody.
 */
@NullMarked
package io.fairlead.lab.examples;

import org.jspecify.annotations.NullMarked;
