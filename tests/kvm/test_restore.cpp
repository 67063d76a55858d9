int placeholder_restore;
