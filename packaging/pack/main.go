// SPDX-License-Identifier: Apache-2.0

// Command pack does what a package needs and nfpm does not: it lays the files of a description
// (packaging/nfpm.yaml) out below a directory for image builders, makes a tar of them, writes the list
// of what is linked into a program as SPDX, and turns what git says of a commit into a package's version.
//
// The description is the only list of files: DEB and RPM are made by nfpm from the same entries. Same
// input, same bytes: owners are root, times are SOURCE_DATE_EPOCH, order is that of the names. It runs
// nothing and needs no network.
//
// Sources: nfpm.goreleaser.com (configuration), reproducible-builds.org (SOURCE_DATE_EPOCH), SPDX 2.3.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

const usage = `usage:
  pack install DESCRIPTION ARCH DIR      lay the files out below DIR
  pack tar DESCRIPTION ARCH              write them as a tar.gz to standard output
  pack sbom PROGRAM                      write what is linked into PROGRAM as SPDX 2.3 JSON
  pack version DESCRIBE                  turn the words of git describe into a package's version`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	epoch, err := sourceDate()
	if err != nil {
		return err
	}
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch {
	case verb == "install" && len(args) == 4:
		list, err := contents(args[1], args[2])
		if err != nil {
			return err
		}
		return install(list, args[3])
	case verb == "tar" && len(args) == 3:
		list, err := contents(args[1], args[2])
		if err != nil {
			return err
		}
		return archive(list, epoch, stdout)
	case verb == "sbom" && len(args) == 2:
		return sbom(args[1], epoch, stdout)
	case verb == "version" && len(args) == 2:
		v, err := packageVersion(args[1], epoch)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(stdout, v)
		return err
	}
	return errors.New("wrong arguments\n" + usage)
}

// sourceDate is SOURCE_DATE_EPOCH, or the beginning of 1970.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		text = "0"
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", text)
	}
	return time.Unix(n, 0).UTC(), nil
}
