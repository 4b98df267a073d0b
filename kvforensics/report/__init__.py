"""Reports: functions from ledgers to text. Nothing here prints."""
