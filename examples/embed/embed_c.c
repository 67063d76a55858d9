/* The same in C, in short. */
#include <tinykvm/tinykvm.h>

#include <stdio.h>

static int complain(const tinykvm_error *error) {
    fprintf(stderr, "embed_c: %s\n", error->message);
    return 1;
}

int main(int argc, char **argv) {
    tinykvm_error error = {0};
    tinykvm_program *program = tinykvm_program_new(argc > 1 ? argv[1] : "./tenant", &error);
    tinykvm_image *image = program ? tinykvm_boot(program, &error) : NULL;
    uint64_t divide = image ? tinykvm_symbol(image, "divide", &error) : 0;
    tinykvm_machine *machine = divide ? tinykvm_machine_new(image, TINYKVM_EPHEMERAL, &error) : NULL;
    if (!machine)
        return complain(&error);
    for (uint64_t by = 0; by < 3; ++by) {
        const tinykvm_argument arguments[] = {{.integer = 84}, {.integer = by}};
        tinykvm_outcome outcome;
        if (tinykvm_call(machine, divide, arguments, 2, 0, &outcome, &error) != 0)
            return complain(&error);
        if (outcome.kind == TINYKVM_RETURNED)
            printf("84 / %d: %d\n", (int)by, (int)outcome.integer);
        else
            printf("84 / %d: failed: %.60s\n", (int)by, outcome.message);
    }
    tinykvm_machine_free(machine);
    tinykvm_image_free(image);
    tinykvm_program_free(program);
    return 0;
}
