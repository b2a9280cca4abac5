package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"sync/atomic"
	"text/template"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/fileproc/fileproc"
)

func main() {
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(1)
	}
	for _, ext := range skipExtensionFlags {
		ignorePatterns = append(ignorePatterns, "**/*."+ext)
	}
	if i := slices.IndexFunc(ignorePatterns, func(p string) bool { return !doublestar.ValidatePattern(p) }); i >= 0 {
		log.Fatalf("-ignore pattern %q is not valid", ignorePatterns[i])
	}
	*license = cmp.Or(legacyLicenseTypes[*license], *license)
	text, err := fetchTemplate(*license, *licensef, spdx)
	tmpl, failed := template.New("").Parse(text)
	if err = cmp.Or(err, failed); err != nil {
		log.Fatal(err)
	}
	_, status := addLicenses(flag.Args(), tmpl, licenseData{Year: *year, Holder: *holder, SPDXID: *license})
	os.Exit(status)
}

// addLicense is addLicenses for one file. It reports whether the file has changed. Errors are in the log.
func addLicense(path string, _ os.FileMode, tmpl *template.Template, data licenseData) (bool, error) {
	report, _ := addLicenses([]string{path}, tmpl, data)
	return report.Replaced > 0, nil
}

// addLicenses returns the status 0 if all files have a license header now, and could be processed.
func addLicenses(roots []string, tmpl *template.Template, data licenseData) (report fileproc.Report, status int) {
	var failed atomic.Int32
	opts := fileproc.Options{
		Roots: roots, Report: &report, MaxFileSize: fileproc.NoLimit, Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true,
		Select: func(f *fileproc.File) bool {
			ignored := fileMatches(f.Path(), ignorePatterns)
			if ignored && *verbose {
				log.Printf("skipping: %s", f.Path())
			}
			header, err := licenseHeader(f.Name(), tmpl, data)
			return !ignored && (header != nil || err != nil)
		},
		OnError: func(err error) error {
			failure := err.(*fileproc.Failure)
			switch info, _ := os.Stat(failure.Path); {
			case failure.Kind == fileproc.FailedFunc:
				log.Printf("%s: %v", failure.Path, failure.Err)
			case failure.Kind == fileproc.FailedFile, info != nil && !info.IsDir():
				log.Printf("%s: %v", failure.Path, &failure.PathError)
			default: // a directory, or a root that is not there
				log.Printf("%s error: %v", failure.Path, &failure.PathError)
				return nil
			}
			failed.Store(1)
			return nil
		},
	}
	fn := func(f *fileproc.File) error {
		header, err := licenseHeader(f.Name(), tmpl, data)
		if err != nil || hasLicense(f.Data()) || isGenerated(f.Data()) {
			return err
		}
		if *checkonly {
			fmt.Println(f.Path())
			failed.Store(1)
			return nil
		}
		if s, err := f.Stat(); err != nil || s.Mode&0o222 == 0 { // read-only
			return cmp.Or(err, os.ErrPermission)
		}
		first := hashBang(f.Data())
		if len(first) > 0 && first[len(first)-1] != '\n' {
			header = append([]byte("\n"), header...)
		}
		err = f.Replace(slices.Concat(first, header, f.Data()[len(first):]))
		if err == nil && *verbose {
			log.Printf("%s modified", f.Path())
		}
		return err
	}
	if err := fileproc.ForEach(context.Background(), ".", opts, fn); err != nil {
		log.Fatal(err)
	}
	return report, int(failed.Load())
}
