/* Codes of many calls, on one RECORD line. */
#ifndef SAID_H
#define SAID_H
#include "conf.h"

static char said[1400];
static void say(const char *what, int code)
{
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, " %s:%d", what, code);
}
static void flush(const char *key)
{
    RECORD("%s=%s", key, said[0] ? said + 1 : "");
    said[0] = 0;
}
#endif
