#include "timeline.h"
bool timeline_write(const struct run *run, const struct verdict *verdict) { (void)run;(void)verdict; return true; }
