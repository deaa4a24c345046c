// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// version is set at link time by the Makefile.
var version = "0.0.0-dev"

// committed is when this version was committed, in seconds since 1970, set at link time too.
var committed = "0"

// buildTime is a time that has certainly passed; zero in a program that was built without the Makefile.
func buildTime() time.Time {
	seconds, err := strconv.ParseInt(committed, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprintf(c.OutOrStdout(), "node-cert-agent %s %s %s/%s\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
