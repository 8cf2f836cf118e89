/*
 * A fake of NVIDIA's Pyxis for the test cluster: a SPANK plugin with the srun options that Pyxis adds.
 *
 * The real one is in no package registry and needs enroot. This one has its options, messages and exit codes, and runs
 * tasks in the image: in a mount namespace with the image as its root. Differences:
 *   - An image is a folder, possibly named x.sqsh. Nothing is unpacked: the image is the lower layer of an overlay. A
 *     step with TESTBED_UNPACK_SECONDS in its environment takes that long, so that two can create a name at once.
 *   - There is no registry: any other image is not available.
 *   - Variables of the image are those in its /etc/environment; it has no entrypoint and "/" is its working directory.
 *   - Files of the image belong to root. With --container-writable the user owns the folders, not the files.
 *   - --container-save and --container-entrypoint are only recorded; sbatch and salloc do not have the options.
 * Each step of srun is recorded in /testbed/log/pyxis.NODE.jsonl, also one without a Pyxis option.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1)

#define STATE "/run/pyxis" /* shared by all nodes, so each has its own folder in it */
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

/* Opposite options are adjacent, the first of each pair at an even offset from MOUNT_HOME. */
enum option {
    IMAGE,
    MOUNTS,
    WORKDIR,
    NAME,
    SAVE,
    ENV,
    MOUNT_HOME,
    NO_MOUNT_HOME,
    REMAP_ROOT,
    NO_REMAP_ROOT,
    ENTRYPOINT,
    NO_ENTRYPOINT,
    WRITABLE,
    READONLY,
    OPTIONS
};

static int take_option(int option, const char *value, int remote);

struct spank_option spank_options[] = {
    {"container-image", "IMAGE", "[pyxis] the image to run in", 1, IMAGE, take_option},
    {"container-mounts", "SRC:DST[:FLAGS][,...]", "[pyxis] what to mount in the container", 1, MOUNTS, take_option},
    {"container-workdir", "PATH", "[pyxis] working directory in the container", 1, WORKDIR, take_option},
    {"container-name", "NAME[:FLAG]", "[pyxis] a container to keep or to use again", 1, NAME, take_option},
    {"container-save", "PATH", "[pyxis] save the container (not in the testbed)", 1, SAVE, take_option},
    {"container-env", "NAME[,NAME...]", "[pyxis] variables of the host that win", 1, ENV, take_option},
    {"container-mount-home", NULL, "[pyxis] mount the home directory", 0, MOUNT_HOME, take_option},
    {"no-container-mount-home", NULL, "[pyxis] do not mount it", 0, NO_MOUNT_HOME, take_option},
    {"container-remap-root", NULL, "[pyxis] be root in the container", 0, REMAP_ROOT, take_option},
    {"no-container-remap-root", NULL, "[pyxis] do not be root", 0, NO_REMAP_ROOT, take_option},
    {"container-entrypoint", NULL, "[pyxis] run the entrypoint (not in the testbed)", 0, ENTRYPOINT, take_option},
    {"no-container-entrypoint", NULL, "[pyxis] do not run it", 0, NO_ENTRYPOINT, take_option},
    {"container-writable", NULL, "[pyxis] make the container writable", 0, WRITABLE, take_option},
    {"container-readonly", NULL, "[pyxis] make it read-only", 0, READONLY, take_option},
    SPANK_OPTIONS_TABLE_END};

/* The options that an environment variable can set too, for every srun. */
static const struct {
    enum option option;
    const char *variable;
} defaults[] = {
    {IMAGE, "PYXIS_CONTAINER_IMAGE"},
    {MOUNTS, "PYXIS_CONTAINER_MOUNTS"},
    {WORKDIR, "PYXIS_CONTAINER_WORKDIR"},
    {NAME, "PYXIS_CONTAINER_NAME"},
};

static char *given[OPTIONS]; /* NULL: not given; "" for an option that takes no value */

/* The state of the container on this node; from the process that created it to slurmstepd, in one write to a pipe. */
struct outcome {
    bool contained;
    char notice[1024];
    char failure[2048];
};
static struct outcome outcome;
static int container = -1; /* its mount namespace */

static char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *text(const char *format, ...)
{
    va_list values;
    char *made;

    va_start(values, format);
    if (vasprintf(&made, format, values) < 0)
        abort();
    va_end(values);
    return made;
}

/* Options */

static bool is_path(const char *value)
{
    return value[0] == '/' || value[0] == '.';
}

/* Why Pyxis refuses this value, or NULL. */
static const char *wrong_mount(char *mount)
{
    const char *source = strsep(&mount, ":");
    const char *target = mount ? strsep(&mount, ":") : source;

    if (!is_path(source) && strcmp(source, "tmpfs") && strcmp(source, "umount"))
        return "mount source must be a relative path, an absolute path, \"tmpfs\" or \"umount\"";
    if (!is_path(target))
        return "mount target must be a relative path or an absolute path";
    return NULL;
}

static const char *wrong_value(enum option option, const char *value)
{
    char *rest = strdup(value), *part;
    const char *flag, *wrong = NULL;

    if (spank_options[option].has_arg && !value[0])
        return text("--%s: argument required", spank_options[option].name);
    switch (option) {
    case MOUNTS:
        while (!wrong && (part = strsep(&rest, ",")))
            wrong = part[0] ? wrong_mount(part) : text("--container-mounts: invalid format: %s", value);
        return wrong;
    case NAME:
        part = strsep(&rest, ":");
        flag = rest && rest[0] ? rest : "auto";
        if (!part[0])
            return "--container-name: empty name";
        if (strcmp(flag, "auto") && strcmp(flag, "create") && strcmp(flag, "exec") && strcmp(flag, "no_exec"))
            return "--container-name: flag must be \"auto\", \"create\", \"exec\" or \"no_exec\"";
        return NULL;
    case ENV:
        while ((part = strsep(&rest, ",")))
            if (!part[0])
                return text("--container-env: invalid format: %s", value);
        return NULL;
    default:
        return NULL;
    }
}

static enum option opposite(enum option option)
{
    return option < MOUNT_HOME ? option : MOUNT_HOME + ((option - MOUNT_HOME) ^ 1);
}

/* Called in srun, where an invalid value ends srun, and again in slurmstepd. */
static int take_option(int option, const char *value, int remote)
{
    const char *wrong;

    (void)remote;
    value = value ? value : "";
    wrong = wrong_value(option, value);
    if (option >= MOUNT_HOME && given[opposite(option)]) {
        enum option first = option < (int)opposite(option) ? (enum option)option : opposite(option);
        wrong = text("both --%s and --%s were specified", spank_options[first].name, spank_options[first + 1].name);
    } else if (given[option] && strcmp(given[option], value) && option != MOUNTS && option != ENV) {
        wrong = text("--%s specified multiple times", spank_options[option].name); /* the last mounts win */
    }
    if (wrong) {
        slurm_error("pyxis: %s", wrong);
        return -1;
    }
    given[option] = strdup(value);
    return 0;
}

static void take_defaults(spank_t spank)
{
    char value[4096];

    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
        enum option option = defaults[i].option;
        if (given[option] || spank_getenv(spank, defaults[i].variable, value, sizeof(value)) != ESPANK_SUCCESS)
            continue;
        const char *wrong = wrong_value(option, value);
        if (wrong)
            snprintf(outcome.failure, sizeof(outcome.failure), "%s", wrong);
        given[option] = strdup(value);
    }
}

/* The process that creates or joins the container, as root. It ends in finish() or fail(). */

static struct {
    spank_t spank;
    char node[HOST_NAME_MAX + 1];
    uid_t uid;
    gid_t gid;
    int report; /* to slurmstepd */
    int until;  /* slurmstepd closes the other end when it has opened our namespace */
    int record;
} maker;

static void put_json(FILE *out, const char *value)
{
    fputc('"', out);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\' || (unsigned char)*value < ' ')
            fprintf(out, "\\u%04x", *value);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

/* One line, in one write: steps can start at the same moment. */
static void record(const char *how)
{
    char *line = NULL, **argv = NULL;
    size_t size = 0;
    uint32_t job = 0, step = 0;
    int argc = 0;
    const char *comma = "";
    FILE *out = open_memstream(&line, &size);

    spank_get_item(maker.spank, S_JOB_ID, &job);
    spank_get_item(maker.spank, S_JOB_STEPID, &step);
    spank_get_item(maker.spank, S_JOB_ARGV, &argc, &argv);
    fprintf(out, "{\"node\": \"%s\", \"job\": %u, \"step\": %u, \"how\": \"%s\"", maker.node, job, step, how);
    fputs(", \"options\": {", out);
    for (int i = 0; i < OPTIONS; i++) {
        if (!given[i])
            continue;
        fprintf(out, "%s\"%s\": ", comma, spank_options[i].name);
        if (spank_options[i].has_arg)
            put_json(out, given[i]);
        else
            fputs("true", out);
        comma = ", ";
    }
    fputs("}, \"command\": [", out);
    for (int i = 0; i < argc; i++) {
        fputs(i ? ", " : "", out);
        put_json(out, argv[i]);
    }
    fputs("]}\n", out);
    fclose(out);
    if (write(maker.record, line, size) < 0)
        slurm_error("pyxis: cannot record the step: %m");
}

static _Noreturn void finish(const char *how)
{
    char end;

    record(how);
    if (write(maker.report, &outcome, sizeof(outcome)) == sizeof(outcome))
        (void)!read(maker.until, &end, 1);
    _exit(0);
}

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void fail(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    vsnprintf(outcome.failure, sizeof(outcome.failure), format, values);
    va_end(values);
    outcome.contained = false;
    finish("failed");
}

static void must(bool done, const char *what)
{
    if (!done)
        fail("the testbed cannot %s: %s", what, strerror(errno));
}

static void make_folders(const char *path)
{
    char *copy = strdup(path);

    for (char *end = copy + 1; (end = strchr(end, '/')); end++) {
        *end = '\0';
        mkdir(copy, 0755);
        *end = '/';
    }
    mkdir(copy, 0755);
    free(copy);
}

/* A mount is opened on the host before the image is entered, and attached after it: symbolic links in the image's paths
 * are then resolved in the image. */
struct mounted {
    int tree; /* -1: a tmpfs */
    char *target;
    bool detach; /* unmount what is mounted there */
    struct mounted *next;
};
static struct mounted *mounts, **last_mount = &mounts;

static bool take_mount(const char *source, const char *target, bool readonly)
{
    struct mounted *new = calloc(1, sizeof(*new));

    new->tree = -1;
    new->target = text("/%s", target);
    new->detach = !strcmp(source, "umount");
    if (!new->detach && strcmp(source, "tmpfs")) {
        new->tree = open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
        if (new->tree < 0)
            return false;
    }
    if (readonly && new->tree >= 0) {
        struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
        must(!mount_setattr(new->tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof(attributes)), "mount ro");
    }
    *last_mount = new;
    last_mount = &new->next;
    return true;
}

static void take_user_mounts(void)
{
    char *rest = strdup(given[MOUNTS] ? given[MOUNTS] : ""), *mount, *flag;

    while ((mount = strsep(&rest, ",")) && mount[0]) {
        const char *source = strsep(&mount, ":");
        const char *target = mount ? strsep(&mount, ":") : source;
        bool readonly = false;
        while ((flag = strsep(&mount, "+")))
            readonly = readonly || !strcmp(flag, "ro");
        if (!take_mount(source, target, readonly))
            fail("--container-mounts: source path does not exist: %s", source);
    }
}

static void put_mounts(void)
{
    struct stat source;

    for (struct mounted *each = mounts; each; each = each->next) {
        if (each->detach) {
            umount2(each->target, MNT_DETACH);
            continue;
        }
        if (each->tree < 0) {
            make_folders(each->target);
            must(!mount("tmpfs", each->target, "tmpfs", 0, "mode=1777"), text("mount a tmpfs on %s", each->target));
            continue;
        }
        must(!fstat(each->tree, &source), "look at what to mount");
        if (S_ISDIR(source.st_mode)) {
            make_folders(each->target);
        } else {
            char *folder = strdup(each->target);
            *strrchr(folder, '/') = '\0';
            make_folders(folder);
            close(open(each->target, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        }
        must(!move_mount(each->tree, "", AT_FDCWD, each->target, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS),
             text("mount on %s", each->target));
    }
}

static int own_folder(const char *path, const struct stat *seen, int type, struct FTW *where)
{
    (void)seen;
    (void)where;
    if (type == FTW_D)
        (void)!lchown(path, maker.uid, maker.gid);
    return 0;
}

/* A file in the container's root that identifies its processes: namespace numbers are soon reused. */
static char *mark_of(const char *name)
{
    return text("/.pyxis_%s", name);
}

/* Start a container on that image, with its changes below `files`; an unnamed one has them in memory. */
static void start(const char *image, const char *name, const char *files)
{
    const char *node = text(STATE "/%s", maker.node), *root = text("%s/root", node);
    char home[PATH_MAX] = "/";

    must(!unshare(CLONE_NEWNS), "make a mount namespace");
    must(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "make mounts private");
    spank_getenv(maker.spank, "HOME", home, sizeof(home));
    const char *home_inside = given[REMAP_ROOT] ? "/root" : home;

    take_mount("/proc", "/proc", false);
    take_mount("/sys", "/sys", false);
    take_mount("/dev", "/dev", false); /* with /dev/shm */
    take_mount("/etc/hosts", "/etc/hosts", true);
    take_mount("/etc/resolv.conf", "/etc/resolv.conf", true);
    take_mount("/etc/hostname", "/etc/hostname", true);
    take_mount("tmpfs", "/tmp", false);
    take_mount("tmpfs", "/run", false);
    if (given[MOUNT_HOME])
        must(take_mount(home, home_inside, false), "mount the home directory");
    take_user_mounts();

    make_folders(root);
    if (!files) {
        files = text("%s/unnamed", node);
        make_folders(files);
        must(!mount("tmpfs", files, "tmpfs", 0, "mode=755"), "mount a tmpfs");
    }
    make_folders(text("%s/upper", files));
    make_folders(text("%s/work", files));
    must(!chdir(image), "go to the image"); /* the name "." needs no quoting */
    char *layers = text("lowerdir=.,upperdir=%s/upper,workdir=%s/work", files, files);
    must(!mount("overlay", root, "overlay", 0, layers), "mount the image");
    must(!chdir(root) && !syscall(SYS_pivot_root, ".", "."), "enter the image");
    must(!umount2(".", MNT_DETACH) && !chdir("/"), "leave the host");

    if (given[WRITABLE])
        nftw("/", own_folder, 32, FTW_PHYS | FTW_MOUNT);
    make_folders(home_inside);
    if (strcmp(home_inside, "/"))
        (void)!chown(home_inside, maker.uid, maker.gid);
    if (name) {
        int mark = open(mark_of(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        must(mark >= 0 && !fchown(mark, maker.uid, maker.gid), "mark the container");
        close(mark);
    }
    put_mounts();
    if (!given[WRITABLE])
        must(!mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), "make the image read-only");
}

/* A process of the container with that name on this node, or NULL. */
static char *running(const char *name)
{
    DIR *processes = opendir("/proc");
    struct dirent *process;
    struct stat mark;
    char *found = NULL;

    while (!found && (process = readdir(processes)))
        if (process->d_name[0] >= '0' && process->d_name[0] <= '9' &&
            !stat(text("/proc/%s/root%s", process->d_name, mark_of(name)), &mark) && mark.st_uid == maker.uid)
            found = strdup(process->d_name);
    closedir(processes);
    return found;
}

/* The full path of the folder of an image. */
static char *image_folder(const char *image)
{
    struct stat found;

    if (!is_path(image))
        fail("importing docker image: %s\nfailed to import docker image: %s\n"
             "    curl: (6) Could not resolve host: registry-1.docker.io",
             image, image);
    if (stat(image, &found))
        fail("failed to create container filesystem for image: %s\n"
             "    [ERROR] No such file or directory: %s",
             image, image);
    if (!S_ISDIR(found.st_mode))
        fail("the testbed takes a folder as an image only, not %s", image);
    return realpath(image, NULL);
}

static void unpack(void)
{
    char seconds[16];

    if (spank_getenv(maker.spank, "TESTBED_UNPACK_SECONDS", seconds, sizeof(seconds)) == ESPANK_SUCCESS)
        usleep((useconds_t)(atof(seconds) * 1e6));
}

/* A named container is a file of the user with two lines: its image, and the folder of its changes. The file is empty
 * while the container is created. Removing the file removes the container. */
static void start_named(const char *name, const char *flag)
{
    const char *folder = text(STATE "/%s/%u", maker.node, maker.uid);
    const char *path = text("%s/pyxis_%s", folder, name);
    char image[PATH_MAX] = "", *files = text(STATE "/%s/files-XXXXXX", maker.node);

    make_folders(folder);
    must(!chown(folder, maker.uid, maker.gid), "give the user a folder");
    FILE *known = fopen(path, "re");
    if (known && !strcmp(flag, "create"))
        fail("error: \"create\" flag was passed to --container-name but the container already exists");
    if (!known) {
        if (!given[IMAGE])
            fail("error: a container with name \"pyxis_%s\" does not exist, and --container-image is not set", name);
        const char *source = image_folder(given[IMAGE]);
        FILE *new = fopen(path, "wxe");
        if (new) {
            must(!fchown(fileno(new), maker.uid, maker.gid) && mkdtemp(files) && !chmod(files, 0755), "create it");
            unpack();
            fprintf(new, "%s\n%s\n", source, files);
            must(!fclose(new), "create it");
        }
        must((known = fopen(path, "re")), "create it");
    }
    if (fscanf(known, "%4095[^\n]\n%ms", image, &files) != 2)
        fail("failed to create container filesystem for image: %s\n"
             "    FATAL ERROR: dir_scan: failed to make directory %s/boot, because File exists",
             given[IMAGE] ? given[IMAGE] : "", path);
    start(image, name, files);
}

static void tell_ignored(bool is_given, const char *option)
{
    size_t used = strlen(outcome.notice);

    if (is_given)
        snprintf(outcome.notice + used, sizeof(outcome.notice) - used,
                 "ignoring --%s because neither --container-image nor --container-name is set\n", option);
}

static void make_container(void)
{
    char *flag = strdup(given[NAME] ? given[NAME] : ""), *name = strsep(&flag, ":"), *process;

    if (!given[IMAGE] && !given[NAME]) {
        tell_ignored(given[MOUNTS], "container-mounts");
        tell_ignored(given[WORKDIR], "container-workdir");
        tell_ignored(given[MOUNT_HOME] || given[NO_MOUNT_HOME], "[no-]container-mount-home");
        tell_ignored(given[REMAP_ROOT] || given[NO_REMAP_ROOT], "[no-]container-remap-root");
        tell_ignored(given[ENTRYPOINT] || given[NO_ENTRYPOINT], "[no-]container-entrypoint");
        finish("host");
    }
    outcome.contained = true;
    if (!given[NAME]) {
        const char *image = image_folder(given[IMAGE]);
        unpack();
        start(image, NULL, NULL);
        finish("unnamed");
    }
    flag = flag && flag[0] ? flag : "auto";
    process = running(name);
    if (!process && !strcmp(flag, "exec"))
        fail("error: \"exec\" flag was passed to --container-name but the container is not running");
    if (!process || !strcmp(flag, "create") || !strcmp(flag, "no_exec")) {
        start_named(name, flag);
        finish("start");
    }
    int space = open(text("/proc/%s/ns/mnt", process), O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNS))
        fail("the container ended just now: %s", strerror(errno));
    if (given[MOUNTS])
        strcpy(outcome.notice, "ignoring --container-mounts when attaching to a running container\n");
    finish("attach");
}

/* slurmstepd: once for all tasks of the step on this node, then in each task */

static void print_lines(void (*print)(const char *, ...), char *lines)
{
    for (char *line; (line = strsep(&lines, "\n"));)
        if (line[0])
            print("pyxis: %s", line);
}

int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
    uint32_t step = 0;
    int report[2], until[2];
    uid_t user = geteuid();

    (void)count;
    (void)arguments;
    spank_get_item(spank, S_JOB_STEPID, &step);
    if (step > SLURM_MAX_NORMAL_STEP_ID)
        return 0; /* a batch script, not a step of srun */
    take_defaults(spank);
    if (outcome.failure[0])
        return 0;
    if (pipe2(report, O_CLOEXEC) || pipe2(until, O_CLOEXEC))
        return -1;
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (child == 0) {
        close(report[0]);
        close(until[1]);
        maker.spank = spank;
        maker.report = report[1];
        maker.until = until[0];
        maker.uid = user;
        maker.gid = getegid();
        umask(022);
        gethostname(maker.node, sizeof(maker.node));
        if (seteuid(0) || setegid(0))
            _exit(1);
        char *log = text("/testbed/log/pyxis.%s.jsonl", maker.node);
        maker.record = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        make_container();
    }
    close(report[1]);
    close(until[0]);
    if (read(report[0], &outcome, sizeof(outcome)) != sizeof(outcome))
        strcpy(outcome.failure, "the process that makes the container has ended");
    if (outcome.contained) {
        if (!seteuid(0)) /* the namespace belongs to root */
            container = open(text("/proc/%d/ns/mnt", child), O_RDONLY | O_CLOEXEC);
        if (container < 0)
            strcpy(outcome.failure, "no container");
        if (seteuid(user))
            return -1;
    }
    close(until[1]);
    close(report[0]);
    waitpid(child, NULL, 0);
    print_lines(slurm_spank_log, strdup(outcome.notice));
    return 0;
}

/* Still root. A failure is reported in task_init, like that of the real plugin. */
int slurm_spank_task_init_privileged(spank_t spank, int count, char **arguments)
{
    (void)spank;
    (void)count;
    (void)arguments;
    if (container >= 0 && setns(container, CLONE_NEWNS))
        snprintf(outcome.failure, sizeof(outcome.failure), "cannot enter the container: %s", strerror(errno));
    return 0;
}

static bool host_value_wins(const char *variable)
{
    char *rest = strdup(given[ENV] ? given[ENV] : ""), *name;

    while ((name = strsep(&rest, ",")))
        if (!strcmp(name, variable))
            return true;
    return false;
}

static void set_environment(spank_t spank)
{
    static const char *const dropped[] = {"LANG", "LANGUAGE", "LC_ALL"};
    FILE *image = fopen("/etc/environment", "re");
    char *line = NULL;
    size_t size = 0;

    for (int i = 0; i < 3; i++)
        if (!host_value_wins(dropped[i]))
            spank_unsetenv(spank, dropped[i]);
    if (!host_value_wins("PATH"))
        spank_setenv(spank, "PATH", DEFAULT_PATH, 1);
    while (image && getline(&line, &size, image) > 0) {
        char *value = line, *name = strsep(&value, "=");
        if (!value || name[0] == '#' || host_value_wins(name))
            continue;
        value[strcspn(value, "\n")] = '\0';
        spank_setenv(spank, name, value, 1);
    }
    if (image)
        fclose(image);
    if (given[REMAP_ROOT])
        spank_setenv(spank, "HOME", "/root", 1);
}

static bool put_line(const char *path, const char *line)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);

    return file >= 0 && write(file, line, strlen(line)) == (ssize_t)strlen(line);
}

static bool become_root_inside(void)
{
    char *uids = text("0 %u 1", geteuid()), *gids = text("0 %u 1", getegid());

    prctl(PR_SET_DUMPABLE, 1); /* otherwise /proc/self belongs to root: slurmstepd has just switched to the user */
    return !unshare(CLONE_NEWUSER) && put_line("/proc/self/setgroups", "deny") &&
           put_line("/proc/self/uid_map", uids) && put_line("/proc/self/gid_map", gids);
}

/* As the user. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
    const char *folder = given[WORKDIR] ? given[WORKDIR] : "/";

    (void)count;
    (void)arguments;
    if (container >= 0 && !outcome.failure[0]) {
        set_environment(spank);
        if (given[REMAP_ROOT] && !become_root_inside())
            snprintf(outcome.failure, sizeof(outcome.failure), "cannot become root: %s", strerror(errno));
        else if (chdir(folder))
            snprintf(outcome.failure, sizeof(outcome.failure), "couldn't chdir to %s: %s", folder, strerror(errno));
    }
    print_lines(slurm_error, strdup(outcome.failure));
    return outcome.failure[0] ? -1 : 0;
}
