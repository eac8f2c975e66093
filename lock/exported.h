/* SPDX-License-Identifier: Apache-2.0
 *
 * What engines in packages of their own need of libdlock beside dlock.h. libdlock.so exports these
 * functions under names that no program has by chance, so that a program's own `fail` never takes
 * the place of the library's. They are no interface: dlock_client_open() takes only an engine of
 * the library's own version.
 */
#ifndef DLOCK_EXPORTED_H
#define DLOCK_EXPORTED_H

#define EXPORTED_AS(name) __asm__("dlock_private_" #name) __attribute__((visibility("default")))

#endif
