#ifndef MPP_UPB_H
#define MPP_UPB_H

/* upb's own headers: their warnings are not ours. */

#pragma GCC system_header

#include <ruby-upb.h>
#include <utf8_range.h>

#endif
