"""Static layouts of GPU instances, from a configuration file of nvidia-mig-parted."""
