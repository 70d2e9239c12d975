/* All settings of the library, printed. */
#ifndef TE_TOOLS_SETTINGS_H
#define TE_TOOLS_SETTINGS_H

#include <stdbool.h>

/* For people, or as JSON. Complains and returns false when the library cannot tell them. */
bool te_settings_print(bool json);

#endif
