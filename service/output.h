/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that the service writes: its log and its history.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#define OUTPUT_ERROR_MAX 448

/* Opens the file for appending, and makes it if need be. access: O_WRONLY or O_RDWR. Takes regular
 * files and character devices only, and never waits: a write to a device fails with EAGAIN where it
 * would wait. The descriptor is the caller's. -1: error[] says what is wrong and what would be
 * right. From any thread. */
int output_open(const char *file, int access, char error[OUTPUT_ERROR_MAX]);

#endif
