// Package plumbing has what packages of this module may do with a run and programs may not, such as keeping a file from being
// opened and counting it as unchanged. Package fileproc provides it; incremental, watch and the command use it.
//
// Fileproc imports this package, which therefore cannot name its types. They are type parameters: Options is
// fileproc.Options, File is *fileproc.File, and Stat is fileproc.Stat.
package plumbing

import (
	"io/fs"

	"github.com/fileproc/fileproc/internal/gitignore"
)

// Hooks are callbacks of a run beside those of its Options.
type Hooks[File any] struct {
	// Unchanged, if not nil, is called for each selected file before it is opened, as Options.Select is, with the metadata
	// that File.Stat returns. If it returns true, the file is not opened, and fn is called at once, with the same
	// File.Worker and without content. Otherwise the file is read as usual, perhaps later, and File.Stat returns metadata
	// from before the read. Unchanged is not called for a file whose metadata cannot be fetched: the run reads such a file.
	// Walk never calls it.
	Unchanged func(File) bool

	// OnBinary, if not nil, is called for each file that Options.SkipBinary skips, before Options.OnSkip. It is called as
	// Options.Select is, and the File has no content.
	OnBinary func(File)

	// OnReplace, if not nil, is called in File.Replace with the File.Worker and the new content, once the file has it. File.Stat
	// then returns the metadata of the new file.
	OnReplace func(worker int, content []byte)

	// GitRoot, if not empty, replaces root, and GitFS replaces Options.FS, when Options.GitIgnore looks for repositories. The
	// .gitignore files below root are still those that the listings of the run show.
	GitRoot string
	GitFS   fs.FS

	// Ignore has patterns that apply in all of root, with less precedence than all others. They match paths relative to another
	// directory. IgnoreAbove returns the path from that directory to root: empty, or with a slash at its end.
	Ignore      []*gitignore.List
	IgnoreAbove func(root string) string

	// IgnoreByName gives the files of a later element of Options.IgnoreFiles precedence over all files of an earlier element, as
	// in rg and fd. Without it, the files of a directory have precedence over those of its parents. With Options.GitIgnore the
	// files above root apply too, up to the top of the repository.
	IgnoreByName bool

	// OnDir, if not nil, is called with the path of a directory relative to root, after Options.SelectDir has returned true for
	// it and before the directory is opened to be listed. It is called as SelectDir is. The first call is for root, with ".",
	// before it is known what is there.
	OnDir func(rel string)

	// OnRule, if not nil, is called with the path of each file outside the listings that decides what is ignored, by its content
	// or because it exists. The call comes before the file is looked up. These are the files that Options.IgnoreFiles names by
	// path, and with GitIgnore those of the repository and its configuration. Workers call it at the same time.
	OnRule func(path string)

	// IsStill, if not nil, tells a Session of package incremental whether nothing has happened to a file since the last run
	// looked at it, as package watch may know from events. The Session asks where neither metadata nor content shows that.
	IsStill func(rel string) bool
}

// An API has one function for each thing that a user of this package does.
type API[Options, File, Stat any] struct {
	// Hooks returns a pointer to the hooks in the options.
	Hooks func(*Options) *Hooks[File]

	// SetUnchanged makes Report.Unchanged count a file for which Hooks.Unchanged has not returned true. It is called in fn,
	// once the content has proved to be unchanged.
	SetUnchanged func(File)

	// Dir identifies the directory that was listed: it is the same value for files of one directory, so that a user need not
	// compose a path for each. The value keeps some of the run's memory.
	Dir func(File) any

	// Restat looks the metadata up anew, in the directory that was listed, without following a link. If this metadata differs
	// from that of File.Stat, the file may have changed while its content was read.
	Restat func(File) (Stat, error)

	// IsOfRule reports whether a failure is about a file, such as .gitignore, as one that says what is ignored. The run may
	// also process that file, with an outcome of its own.
	IsOfRule func(failure error) bool
}

var provided any // an API

// Provide is called by the init function of package fileproc.
func Provide[Options, File, Stat any](api API[Options, File, Stat]) { provided = api }

// Of returns what was provided. It panics if the type arguments are not fileproc's. Packages keep it in a variable: nothing
// is converted or looked up for each file, and the compiler checks every use.
func Of[Options, File, Stat any]() API[Options, File, Stat] {
	return provided.(API[Options, File, Stat])
}
