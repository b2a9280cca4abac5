package run

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/internal/records"
)

// eachListed visits the files of --files-from: each group of successive names that are relative to the same directory is
// one run. A name is read when the one before has been taken.
func (r *Run) eachListed(j *Job) error {
	in := os.Stdin
	if r.List != Stdin {
		var err error
		if in, err = os.Open(r.List); err != nil {
			return fmt.Errorf("--files-from: %w", err)
		}
		defer in.Close()
	}
	end := byte('\n')
	if r.Null {
		end = 0
	}
	next, stop := iter.Pull2(records.All(r.Ctx, in, end))
	defer stop()
	var name, dir, rel string // the next name, and its parts
	var failed error
	advance := func() (ok bool) {
		name, failed, ok = next()
		dir, rel = SplitName(name)
		return ok && failed == nil
	}
	for more := advance(); more && r.Ctx.Err() == nil; {
		at := dir
		r.Opts.Files = nil
		if rel == "" { // the whole directory
			more = advance()
		} else {
			r.Opts.Files = func(yield func(string) bool) {
				for more && dir == at && rel != "" && yield(rel) {
					more = advance()
				}
			}
		}
		if err := r.eachInDir(j, at); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("--files-from: %w", failed)
	}
	return context.Cause(r.Ctx)
}

// SplitName returns the directory to open for a name, empty for the working directory, and the rest, which is slash-separated:
// "/etc/x" is etc/x in the file system's root, "../x" is x in the directory above. An empty rest stands for the directory itself.
func SplitName(name string) (dir, rel string) {
	if name == "" || name == "." {
		return "", "." // which names no file either
	}
	name = filepath.ToSlash(name)
	volume := filepath.VolumeName(name)
	if rest := name[len(volume):]; strings.HasPrefix(rest, "/") {
		return filepath.FromSlash(volume + "/"), clean(rest)
	}
	rel = clean(name)
	for strings.HasPrefix(rel, "../") {
		dir, rel = dir+"../", rel[len("../"):]
	}
	return filepath.FromSlash(strings.TrimSuffix(dir, "/")), rel
}

// clean removes the elements of a path that mean nothing, and keeps a slash at the end.
func clean(name string) string {
	elements := strings.Split(name, "/")
	last := elements[len(elements)-1]
	elements = slices.DeleteFunc(elements, func(e string) bool { return e == "" || e == "." })
	if last == "" || last == "." {
		elements = append(elements, "")
	}
	return strings.Join(elements, "/")
}
