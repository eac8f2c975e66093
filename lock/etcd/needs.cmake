# SPDX-License-Identifier: Apache-2.0
# etcd_lacks(RESULT): what libdlock-etcd needs and is not there, as a sentence; or nothing.
find_package(PkgConfig REQUIRED)

function(etcd_lacks result)
  set(lacks)
  pkg_check_modules(DLOCK_CURL QUIET libcurl)
  pkg_check_modules(DLOCK_CJSON QUIET libcjson)
  if(NOT DLOCK_CURL_FOUND)
    set(lacks "libcurl with its headers was not found (on Debian: libcurl4-openssl-dev)")
  elseif(DLOCK_CURL_VERSION VERSION_LESS 7.87) # CURLOPT_QUICK_EXIT
    set(lacks "libcurl ${DLOCK_CURL_VERSION} is too old, 7.87 or later is needed")
  elseif(NOT DLOCK_CJSON_FOUND)
    set(lacks "cJSON with its headers was not found (on Debian: libcjson-dev)")
  endif()
  set(${result} "${lacks}" PARENT_SCOPE)
endfunction()
