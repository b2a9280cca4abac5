package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
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
	for _, p := range ignorePatterns {
		if !doublestar.ValidatePattern(p) {
			log.Fatalf("-ignore pattern %q is not valid", p)
		}
	}
	if name, old := legacyLicenseTypes[*license]; old {
		*license = name
	}
	var tmpl *template.Template
	text, err := fetchTemplate(*license, *licensef, spdx)
	if err == nil {
		tmpl, err = template.New("").Parse(text)
	}
	if err != nil {
		log.Fatal(err)
	}
	if !processAll(flag.Args(), tmpl, licenseData{Year: *year, Holder: *holder, SPDXID: *license}) {
		os.Exit(1)
	}
}

// processAll reports whether all files have a license header now, and could be processed.
func processAll(roots []string, tmpl *template.Template, data licenseData) bool {
	var failed atomic.Bool
	opts := fileproc.Options{
		Roots: roots, MaxFileSize: fileproc.NoLimit, Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true,
		Select: func(f *fileproc.File) bool {
			if fileMatches(f.Path(), ignorePatterns) {
				if *verbose {
					log.Printf("skipping: %s", f.Path())
				}
				return false
			}
			header, err := licenseHeader(f.Name(), tmpl, data)
			return header != nil || err != nil
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
			failed.Store(true)
			return nil
		},
	}
	fn := func(f *fileproc.File) error {
		_, err := licenseHeader(f.Name(), tmpl, data)
		if err != nil || hasLicense(f.Data()) || isGenerated(f.Data()) {
			return err
		}
		if *checkonly {
			fmt.Println(f.Path())
			failed.Store(true)
			return nil
		}
		stat, err := f.Stat()
		if err != nil {
			return err
		}
		_, err = addLicense(f.Path(), stat.Mode, tmpl, data)
		if err == nil && *verbose {
			log.Printf("%s modified", f.Path())
		}
		return err
	}
	if err := fileproc.ForEach(context.Background(), ".", opts, fn); err != nil {
		log.Fatal(err)
	}
	return !failed.Load()
}
