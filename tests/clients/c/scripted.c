#include "check.h"
void scripted(void) {}
void scripted_memory(void) {}
void scripted_fuzz(double seconds) { (void)seconds; }
