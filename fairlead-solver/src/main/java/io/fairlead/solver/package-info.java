/**
 * The sparse solver: set up once, solve often; the first user of the whole path.
 *
 * <p>Receives a matrix and right-hand sides. Hands solutions, and how they were reached.
 */
@NullMarked
package io.fairlead.solver;

import org.jspecify.annotations.NullMarked;
