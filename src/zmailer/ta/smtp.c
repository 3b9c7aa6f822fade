/* smtp: delivers to other hosts. */
#include "smtp_agent.h"

int main(int argc, char **argv)
{
    struct smtp_options options;
    int status;

    smtp_options_read(argc, argv, &options);
    status = smtp_agent_run(&options);
    smtp_options_fini(&options);
    return status;
}
