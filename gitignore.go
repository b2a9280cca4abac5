package fileproc

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc/internal/gitrepo"
)

// GitIgnoreFiles returns what [Options.IgnoreFiles] takes for a run over root to
// leave out what git ignores. In a repository that is, the later counting more:
// git's global file (core.excludesFile), info/exclude of the repository, the
// .gitignore files of the directories above root, up to the repository's top, and
// the name ".gitignore", for those in root. Outside a repository it is that name
// alone. Root is a directory of the operating system; it need not be the top.
//
// Names are of further ignore files that every directory may have, such as
// ".ignore", and count more than a .gitignore beside them.
//
// Git tracks files that it ignores if they were added, and these are left out
// too. Nothing says what git does with its own directory and with repositories
// in this one: Options.Exclude of "**/.git" leaves out the former. If root itself
// is ignored that changes nothing.
//
// The repository is that of the nearest directory above with a .git that git
// would take, a directory or, as in submodules and further work trees, a file.
// The configuration is that of the system (/etc/gitconfig), the user and the
// repository, with the files that they include, always or by gitdir; variables
// that say where it is (HOME, XDG_CONFIG_HOME, GIT_CONFIG_GLOBAL and the like) are
// heeded, those that say where the repository is (GIT_DIR and the like) are not. It
// is an error if one of these files is damaged or cannot be read, and then only
// the names are returned. Unlike git it looks for the repository beyond the top of
// a file system too.
func GitIgnoreFiles(root string, names ...string) ([]string, error) {
	names = append([]string{".gitignore"}, names...)
	dir, err := filepath.Abs(root)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return names, err
	}
	repo, err := gitrepo.Find(dir)
	if err != nil || repo == nil {
		return names, err
	}
	global, err := repo.ExcludesFile()
	if err != nil {
		return names, err
	}
	var levels []string // from the top to root
	if rel, err := filepath.Rel(repo.Top, dir); err == nil && rel != "." {
		levels = strings.Split(filepath.ToSlash(rel), "/")
	}
	var files []string
	for _, f := range []string{global, filepath.Join(repo.Common, "info", "exclude")} {
		if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
			files = append(files, aboutTop(repo.Top, f, len(levels)))
		}
	}
	for i := range levels {
		above := filepath.Join(repo.Top, filepath.Join(levels[:i]...))
		for _, name := range names {
			// Git follows no link here either.
			if info, err := os.Lstat(filepath.Join(above, name)); err == nil && info.Mode().IsRegular() {
				files = append(files, strings.Repeat("../", len(levels)-i)+name)
			}
		}
	}
	return append(files, names...), nil
}

// aboutTop returns file as Options.IgnoreFiles takes one whose patterns are about
// paths in top, which is up directories above root. If that is impossible, since
// file is on another volume, they are about paths in root.
func aboutTop(top, file string, up int) string {
	rel, err := filepath.Rel(top, file)
	rel = filepath.ToSlash(rel)
	switch {
	case err != nil, up == 0 && !filepath.IsLocal(rel):
		return file
	case !filepath.IsLocal(rel) || !isPath(rel):
		rel = "./" + rel
	}
	return strings.Repeat("../", up) + rel
}
