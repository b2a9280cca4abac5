// Package run has what the subcommands share: the flags that select files, and the driver that visits the files.
package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
)

// A Run is one run of the command.
type Run struct {
	Ctx  context.Context
	Stop context.CancelCauseFunc // ends the run early, for the given reason
	Out  *output.Output
	Selection

	Silent   bool            // Fail only counts
	Totals   fileproc.Report // of all directories and files, for --report
	Read     atomic.Int64    // bytes of content that Totals does not count
	Found    atomic.Bool
	Failures atomic.Int64 // that Totals does not count
}

// ErrEnough is returned by Job.Visit to end the whole run early.
var ErrEnough = errors.New("enough")

// Fail prints a failure at once and counts it.
func (r *Run) Fail(err error) {
	r.Failures.Add(1)
	if !r.Silent {
		r.Out.Warn(Describe(err)) // one line, whatever name is in it
	}
}

// opProcess is the Op that the package gives to an error that Job.Visit returns.
const opProcess = "process"

// failOf reports the failure of a file.
func (r *Run) failOf(path string, err error) {
	r.Fail(&fs.PathError{Op: opProcess, Path: path, Err: err})
}

// Describe returns the message of a failure, with the path once and without the package's own words.
func Describe(err error) string {
	p, ok := err.(*fs.PathError)
	var inner *fs.PathError
	switch {
	case !ok:
		return err.Error()
	case p.Op == opProcess && errors.As(p.Err, &inner):
		return Describe(inner)
	}
	return strings.TrimPrefix(p.Op+" ", opProcess+" ") + p.Path + ": " + strings.TrimPrefix(p.Err.Error(), "fileproc: ")
}

var optionFlags = strings.NewReplacer("fileproc: ", "", "Options.Suffixes", "--suffix", "Options.MaxDepth", "--max-depth", "Options.Include", "--include",
	"Options.Exclude", "--exclude", "Options.IgnoreFiles", "--ignore-file", "Options.OneFilesystem", "--one-file-system", "Options.Files", "--files-from",
	"Options.SymlinksOutside", "--symlinks-outside", "Options.Symlinks", "--symlinks", anywhere, "")

// AsFlags returns the message of an error that ends the run, in which flags replace the names of fileproc.Options and
// pflag's wording.
func AsFlags(err error) string {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		why := wrong.Unwrap()
		if n, ok := errors.AsType[*strconv.NumError](why); ok {
			why = n.Err
		}
		return fmt.Sprintf("--%s is %q: %v", wrong.GetFlag().Name, wrong.GetValue(), why)
	}
	msg := Describe(err)
	if m := regexp.MustCompile(`^if any flags in the group .* \[(.*)\] were all set$`).FindStringSubmatch(msg); m != nil {
		return "--" + strings.Join(strings.Fields(m[1]), " and --") + " cannot be used together"
	}
	if strings.HasPrefix(msg, "fileproc: ") {
		return optionFlags.Replace(msg)
	}
	return msg
}

// Version returns the module's version, as recorded by go install or from the version control system.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "(unknown)"
}
