/**
 * A race test that must fail, so that a harness which finds nothing is noticed, and one that must
 * pass, so that one which fails everything is.
 *
 * <p>Receives nothing. Hands one result of each kind to the test that runs the race tests.
 */
@NullMarked
package io.fairlead.lab.canary;

import org.jspecify.annotations.NullMarked;
