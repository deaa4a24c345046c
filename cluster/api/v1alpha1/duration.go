// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

// Duration is a time span in hours, minutes and seconds, for instance 1h30m. It is text whatever it says: a value
// that does not decode would keep every object of a list from being read.
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=18
// +kubebuilder:validation:Pattern=`^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$`
type Duration string

// Or is the duration, or the other one if it is nil or is no duration.
func (d *Duration) Or(other time.Duration) time.Duration {
	if d == nil {
		return other
	}
	t, err := time.ParseDuration(string(*d))
	if err != nil || t < 0 {
		return other
	}
	return t
}
