/**
 * Races of the step "message": the doorbell of the communication thread, and its end.
 *
 * <p>Receives the public types of fairlead-comm. Hands jcstress small states that two or three
 * threads change at once, with every outcome explained.
 */
@NullMarked
package io.fairlead.lab.comm;

import org.jspecify.annotations.NullMarked;
