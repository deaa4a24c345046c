// SPDX-License-Identifier: Apache-2.0

package main

import "go.etcd.io/etcd/server/v3/etcdmain"

// etcd is a file of its own because etcdmain registers its flags on import and takes all of os.Args.
func etcd(args []string) { etcdmain.Main(args) }
