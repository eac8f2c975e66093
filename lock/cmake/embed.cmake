# SPDX-License-Identifier: Apache-2.0
# Writes OUT: the script's bytes as a C array, and their SHA1.
file(READ ${SCRIPT} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(SHA1 ${SCRIPT} sha1)
file(WRITE ${OUT} "/* Made from ${NAME}.lua. */
#include \"script.h\"
static const char text[] = {${bytes}0};
extern const struct script lua_${NAME};
const struct script lua_${NAME} = {text, \"${sha1}\"};
")
