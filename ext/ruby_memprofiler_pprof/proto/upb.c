/*
 * upb and its UTF-8 check, out of the gem google-protobuf and compiled into this library. Compile with
 * -fvisibility=hidden, so that these are not mixed up with the copies that google-protobuf itself loads.
 */

#include <ruby-upb.c>
#include <utf8_range.c>
