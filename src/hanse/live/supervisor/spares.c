/* Records and empty directories of forgotten attempts, kept for the next ones: no operation of a file system
 * costs more than to make and remove files. */
#include "launcher.h"

#include <sys/file.h>
#include <sys/xattr.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

enum { SPARE_BYTES_MAX = 4096 }; /* of a directory; one that was large once stays slow */

static int spare_record[SPARES_MAX], spare_records;
static int spare_directory[SPARES_MAX], spare_directories;
static int spare_serial;
static uid_t spare_uid, last_uid; /* owner of the spare directories, and last user of one */
static gid_t spare_gid;

static void spare_path(char path[64], const char *place, int number) {
    snprintf(path, 64, "%s/spare.%d", place, number);
}

/* The record of a forgotten attempt is written anew before it gets the name of this one. */
int reuse_record(const char *path, const struct iovec parts[3]) {
    char spare[64];
    if (spare_records == 0) {
        errno = ENOENT;
        return -1;
    }
    spare_path(spare, "records", spare_record[--spare_records]);
    int file = open(spare, O_RDWR | O_CLOEXEC);
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0 && writev(file, parts, 3) == total_length(parts)
        && syscall(SYS_renameat2, AT_FDCWD, spare, AT_FDCWD, path, RENAME_NOREPLACE) == 0) {
        return file;
    }
    int error = errno;
    close_if_open(file);
    unlink(spare);
    errno = error == EEXIST ? EEXIST : EIO;
    return -1;
}

void keep_record(const char *path) {
    char spare[64];
    spare_path(spare, "records", spare_serial);
    if (spare_records < SPARES_MAX && rename(path, spare) == 0) {
        spare_record[spare_records++] = spare_serial++;
    } else {
        unlink(path);
    }
}

bool take_spare_directory(const struct attempt *a) {
    char spare[64], path[64];
    bool same = a->start->uid < 0;
    uid_t uid = same ? geteuid() : (uid_t)a->start->uid;
    gid_t gid = same ? getegid() : (gid_t)a->start->gid;
    last_uid = uid;
    if (spare_directories == 0) {
        return false;
    }
    spare_path(spare, "work", spare_directory[--spare_directories]);
    if (uid != spare_uid || gid != spare_gid) {
        rmdir(spare); /* never another user's: an open descriptor could look on. Make room for this user's */
        return false;
    }
    snprintf(path, sizeof path, "work/%s", a->key);
    if (chmod(spare, 0700) == 0 && rename(spare, path) == 0) {
        return true;
    }
    rmdir(spare);
    return false;
}

/* True if a directory is as it was made: empty, small, open to its owner only, without access control lists. */
static bool is_pristine(int file) {
    int64_t entries[64];
    char names[256];
    struct stat facts;
    if (fstat(file, &facts) || facts.st_size > SPARE_BYTES_MAX || flistxattr(file, names, sizeof names) > 0) {
        return false;
    }
    if (spare_directories == 0) {
        spare_uid = facts.st_uid;
        spare_gid = facts.st_gid;
    }
    if (facts.st_uid != spare_uid || facts.st_gid != spare_gid || facts.st_uid != last_uid) {
        return false; /* the next one is hardly the same user's */
    }
    const struct entry {
        uint64_t number, offset;
        unsigned short length;
        unsigned char kind;
        char name[1];
    } *entry;
    for (long got; (got = syscall(SYS_getdents64, file, entries, sizeof entries)) != 0;) {
        for (long at = 0; at < got; at += entry->length) {
            entry = (const struct entry *)((const char *)entries + at);
            if (strcmp(entry->name, ".") && strcmp(entry->name, "..")) {
                return false;
            }
        }
        if (got < 0) {
            return false;
        }
    }
    return true;
}

bool keep_directory(const char *path) {
    char spare[64];
    int file = -1;
    if (spare_directories < SPARES_MAX) {
        file = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (file < 0) {
        return false;
    }
    bool kept = is_pristine(file);
    close(file);
    spare_path(spare, "work", spare_serial);
    if (kept && rename(path, spare) == 0) {
        spare_directory[spare_directories++] = spare_serial++;
        return true;
    }
    return false;
}

/* Remove spares of this launcher, or of one before it, for attempts that will not come. */
static void remove_spares_in(const char *place) {
    DIR *top = opendir(place);
    for (struct dirent *entry; top && (entry = readdir(top));) {
        if (strncmp(entry->d_name, "spare.", 6) == 0
            && unlinkat(dirfd(top), entry->d_name, 0) && unlinkat(dirfd(top), entry->d_name, AT_REMOVEDIR)) {
            log_line("cannot remove %s/%s: %s", place, entry->d_name, strerror(errno));
        }
    }
    if (top) {
        closedir(top);
    }
}

void remove_spares(void) {
    spare_records = spare_directories = 0;
    remove_spares_in("records");
    remove_spares_in("work");
}
