/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that the service writes: its log and its history.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#define OUTPUT_ERROR_MAX 448

/* Opens the file for appending, and creates it if there is none. access: O_WRONLY or O_RDWR.
 * Accepts only regular files and character devices. Never waits: a write to a device that would
 * wait fails with EAGAIN. The caller closes the descriptor. -1: error[] says what is wrong and what
 * would be right. Any thread. */
int output_open(const char *file, int access, char error[OUTPUT_ERROR_MAX]);

#endif
