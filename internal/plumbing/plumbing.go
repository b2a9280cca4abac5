// Package plumbing is what packages of this module may do with a run and programs may not: keep a file from being opened,
// and count it as unchanged. Package fileproc provides it, incremental, watch, pipe and the command use it.
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
	// from before that. Unchanged is not called for a file whose metadata cannot be fetched, which is read, nor by Walk.
	Unchanged func(File) bool

	// OnBinary, if not nil, is called for each file that Options.SkipBinary skips, before Options.OnSkip is. It is called as
	// Options.Select is, and without content.
	OnBinary func(File)

	// GitRoot, if not empty, is what Options.GitIgnore takes for root, and GitFS for Options.FS, when it looks for repositories.
	// Of the .gitignore files below root it uses those that are listed.
	GitRoot string
	GitFS   fs.FS

	// Ignore are patterns that apply in all of root, with less precedence than all others. They are about paths relative to a
	// directory from which IgnoreAbove leads to root: empty, or with a slash at its end.
	Ignore      []*gitignore.List
	IgnoreAbove string

	// IgnoreByName lets the files of a later element of Options.IgnoreFiles take precedence over all of an earlier one, as in rg
	// and fd, rather than those of a directory over its parents'. With Options.GitIgnore those above root apply too, up to the
	// repository's top.
	IgnoreByName bool

	// OnDir, if not nil, is called before a directory is opened to be listed, with its path relative to root, as
	// Options.SelectDir is, once that has returned true. For root it is "." and comes first, before it is known what is there.
	OnDir func(rel string)

	// OnRule, if not nil, is called with the path of each file outside the listings that decides what is ignored, by what it
	// contains or by being there, before that is looked up: those that Options.IgnoreFiles names by path, and with GitIgnore those
	// of the repository and its configuration. Workers call it at the same time.
	OnRule func(path string)

	// IsStill, if not nil, tells a Session of package incremental that nothing has happened to a file since the last run has
	// looked at it, as package watch may know from events. It is asked where neither metadata nor content says so.
	IsStill func(rel string) bool
}

// An API has one function for each thing that a user of this package does.
type API[Options, File, Stat any] struct {
	// Hooks returns where the hooks of the options are.
	Hooks func(*Options) *Hooks[File]

	// SetUnchanged makes Report.Unchanged count a file for which Hooks.Unchanged has not returned true. It is called in fn,
	// once the content has proved to be unchanged.
	SetUnchanged func(File)

	// Dir identifies the directory that was listed: it is the same value for files of one directory, so that a user need not
	// compose a path for each. It keeps some of the run's memory.
	Dir func(File) any

	// Restat looks the metadata up anew, in the directory that was listed, without following a link. If it differs from
	// File.Stat, the file may have changed while its content was read.
	Restat func(File) (Stat, error)

	// IsOfRule reports whether a failure is that of a file as one that says what is ignored, such as .gitignore. Whether
	// it is a file that is processed, and what came of that, is another matter.
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
